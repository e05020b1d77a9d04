"""Computes the curves of a report as points."""

import numpy as np

from jaxatr.typing import Bool, Float, Shaped


def rate_curve(
    known_scores: Shaped[np.ndarray, " n"],
    known_counts: Bool[np.ndarray, " n"],
    unknown_scores: Shaped[np.ndarray, " m"],
) -> Float[np.ndarray, "p 2"]:
    """Computes the ROC or OSCR curve: the origin and one point for each distinct score.

    Args:
      known_scores: ``[n]``, scores of the known examples.
      known_counts: ``[n]``, known examples that count when they are accepted: all of them for the
        ROC curve, correctly classified ones for the OSCR curve (Dhamija et al. 2018).
      unknown_scores: ``[m]``, scores of the unknown examples.

    Returns:
      ``[p, 2]``, the share of unknown examples that are accepted and the share of known examples
      that are accepted and count, for a decreasing threshold. The area under the curve by the
      trapezoidal rule is :func:`jaxatr.metrics.auroc` or :func:`jaxatr.metrics.oscr`.
    """
    thresholds = np.unique(np.concatenate([known_scores, unknown_scores]))[::-1]
    accepted = _reaching(unknown_scores, thresholds) / len(unknown_scores)
    counted = _reaching(known_scores[known_counts], thresholds) / len(known_scores)
    return np.concatenate([np.zeros((1, 2)), np.stack([accepted, counted], axis=1)])


def thin(points: Float[np.ndarray, "p 2"], tolerance: float) -> Float[np.ndarray, "q 2"]:
    """Simplifies a line so that no removed point is further than ``tolerance`` from it.

    Ramer (1972) and Douglas & Peucker (1973). The first and last points are kept.
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
    """Computes each point's distance from a segment."""
    along, from_start = end - start, points - start
    length = np.dot(along, along)
    place = np.clip(from_start @ along / length, 0, 1) if length else np.zeros(len(points))
    return np.hypot(*(from_start - place[:, None] * along).T)
