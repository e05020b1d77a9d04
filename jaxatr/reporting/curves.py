"""The curves of a report, as points."""

import numpy as np

from jaxatr.typing import Bool, Float, Shaped


def rate_curve(
    known_scores: Shaped[np.ndarray, " n"],
    known_counts: Bool[np.ndarray, " n"],
    unknown_scores: Shaped[np.ndarray, " m"],
) -> Float[np.ndarray, "p 2"]:
    """Returns the ROC or the OSCR curve: one point for each distinct score, and the origin.

    Args:
      known_scores: ``[n]``, of the known examples.
      known_counts: ``[n]``, which known examples count once they are accepted: all of them for the
        ROC curve, those of the right class for the OSCR curve (Dhamija et al. 2018).
      unknown_scores: ``[m]``, of the unknown examples.

    Returns:
      The share of unknown examples accepted and the share of known ones accepted and counted, as
      the threshold falls. The trapezoid under it is :func:`jaxatr.metrics.auroc` or
      :func:`jaxatr.metrics.oscr`.
    """
    thresholds = np.unique(np.concatenate([known_scores, unknown_scores]))[::-1]
    accepted = _reaching(unknown_scores, thresholds) / len(unknown_scores)
    counted = _reaching(known_scores[known_counts], thresholds) / len(known_scores)
    return np.concatenate([np.zeros((1, 2)), np.stack([accepted, counted], axis=1)])


def thin(points: Float[np.ndarray, "p 2"], tolerance: float) -> Float[np.ndarray, "q 2"]:
    """Returns the line with fewer points, none of the others further than ``tolerance`` from it.

    (Ramer 1972; Douglas & Peucker 1973.) The first and the last point stay.
    """
    keep = np.zeros(len(points), bool)
    keep[[0, -1]] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        distance = _distance(points[first + 1 : last], points[first], points[last])
        middle = first + 1 + int(np.argmax(distance))
        if distance.max() > tolerance:
            keep[middle] = True
            spans += [(first, middle), (middle, last)]
    return points[keep]


def _reaching(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, "left")


def _distance(points: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Returns each point's distance from the segment."""
    along, from_start = end - start, points - start
    length = np.dot(along, along)
    place = np.clip(from_start @ along / length, 0, 1) if length else np.zeros(len(points))
    return np.hypot(*(from_start - place[:, None] * along).T)
