"""Which found targets are which true ones, and recall against false alarms."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.scenes import boxes as geometry
from jaxatr.tasks.detection.assignment import IGNORED, UNKNOWN
from jaxatr.tasks.detection.decoding import Found
from jaxatr.typing import Bool, Float, Int

FALSE_ALARM = -1
DROPPED = -2
"""The match of a found box with an ignored one only: neither a hit nor a false alarm."""

OVERLAP = 0.5
"""Least IoU of a found target and a true one."""


def match(
    found: Found, boxes: Float[np.ndarray, "m 4"], labels: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " n"]:
    """Matches the found targets of a scene to its true ones, whatever their class.

    The more certain chooses first, the target that it overlaps most of those still free.

    Args:
      found: the found targets.
      boxes: ``[m, 4]``, the true boxes.
      labels: ``[m]``, known classes, ``UNKNOWN`` or ``IGNORED``.

    Returns:
      ``[n]``: the row of the true box, :data:`FALSE_ALARM` or :data:`DROPPED`.
    """
    rows = np.full(len(found.scores), FALSE_ALARM)
    if not len(labels):
        return rows
    overlaps = np.asarray(geometry.iou(found.boxes[:, None], boxes[None]))
    inside = np.asarray(geometry.covered(found.boxes[:, None], boxes[None]))
    is_target = labels >= UNKNOWN
    free = is_target.copy()
    for row in np.argsort(-found.scores, kind="stable"):
        best = int(np.argmax(np.where(free, overlaps[row], -1)))
        if free[best] and overlaps[row, best] >= OVERLAP:
            rows[row], free[best] = best, False
        elif np.any(inside[row, labels == IGNORED] >= OVERLAP):
            rows[row] = DROPPED
    return rows


def nearest(probabilities: Float[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """Returns the most probable class of each target; ``UNKNOWN`` if there are no classes."""
    count, classes = probabilities.shape
    return probabilities.argmax(axis=1) if classes else np.full(count, UNKNOWN)


class Matched(NamedTuple):
    """All found targets of some scenes, in the order of the scenes, with what they match.

    Attributes:
      scores: ``[n]``, probability of a target.
      probabilities: ``[n, k]``, of the binary classifiers.
      hit: ``[n]``, whether it is a true target.
      labels: ``[n]``, the label of that; ``IGNORED`` for false alarms.
      truth: ``[n]``, its row among the true boxes of all scenes; -1 for false alarms.
      counted: ``[n]``, whether it is a hit or a false alarm.
      total: the true labels of all scenes' boxes, ``[t]``.
      scenes: the number of scenes.
    """

    scores: Float[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n k"]
    hit: Bool[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    truth: Int[np.ndarray, " n"]
    counted: Bool[np.ndarray, " n"]
    total: Int[np.ndarray, " t"]
    scenes: int

    @property
    def targets(self) -> int:
        """The number of true targets."""
        return int(np.sum(self.total >= UNKNOWN))

    @property
    def nearest(self) -> Int[np.ndarray, " n"]:
        """The class with the largest probability."""
        return nearest(self.probabilities)

    @property
    def known_probability(self) -> Float[np.ndarray, " n"]:
        """The largest probability of a known class."""
        return self.probabilities.max(axis=1, initial=0.0)

    def threshold(self, false_alarms: float) -> float:
        """Returns the least score at which there are at most so many false alarms per scene.

        It is the score of a found target, or just above that of the first false alarm too many.
        """
        wrong = np.sort(self.scores[self.counted & ~self.hit])[::-1]
        allowed = int(np.floor(false_alarms * self.scenes + 1e-9))
        if len(wrong) <= allowed:
            return float(self.scores.min(initial=1.0))
        return float(np.nextafter(wrong[allowed], np.float32(np.inf), dtype=np.float32))

    def threshold_of_recall(self, share: float) -> float:
        """Returns the highest score at which so many of the true targets are found.

        NaN if there are no targets, or fewer are found at any score.
        """
        hits = np.sort(self.scores[self.hit & (self.labels >= UNKNOWN)])[::-1]
        wanted = int(np.ceil(share * self.targets - 1e-9))
        return float(hits[wanted - 1]) if 0 < wanted <= len(hits) else float("nan")

    def recall(self, threshold: float, chosen: Bool[np.ndarray, " t"] | None = None) -> float:
        """Returns the share of true targets, or of the chosen ones, found with at least a score.

        Args:
          threshold: the least score.
          chosen: ``[t]``, which boxes to count; by default all targets. NaN if there are none.
        """
        counts = self.total >= UNKNOWN if chosen is None else chosen
        rows = self.truth[self.hit & (self.scores >= threshold)]
        return float(counts[rows].sum() / counts.sum()) if counts.any() else float("nan")

    def false_alarms(self, threshold: float) -> float:
        """Returns the number of false alarms per scene with at least a score."""
        wrong = self.counted & ~self.hit & (self.scores >= threshold)
        return float(wrong.sum() / self.scenes)


def match_all(
    found: Sequence[Found],
    boxes: Sequence[Float[np.ndarray, "_ 4"]],
    labels: Sequence[Int[np.ndarray, " _"]],
) -> Matched:
    """Matches the found targets of several scenes, at least one."""
    rows = [match(*scene) for scene in zip(found, boxes, labels, strict=True)]
    starts = np.cumsum([0, *map(len, labels)])[:-1]
    total = np.concatenate(labels).astype(int)
    row, start = np.concatenate(rows), np.repeat(starts, [len(one) for one in rows])
    hit = row >= 0
    truth = np.where(hit, row + start, -1)
    own = np.where(hit, total[truth] if len(total) else IGNORED, IGNORED)
    logits = np.concatenate([one.open_logits for one in found]).astype(np.float64)
    probabilities = 1 / (1 + np.exp(-logits))
    scores = np.concatenate([one.scores for one in found])
    return Matched(scores, probabilities, hit, own, truth, row != DROPPED, total, len(found))
