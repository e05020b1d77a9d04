"""Links boxes over frames: a Kalman filter of constant velocity, and the Hungarian method.

As in ByteTrack (Zhang et al. 2022), boxes of low scores are assigned after the others, to the
tracks that are left: a target that is half hidden keeps its track, and background begins none.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxatr.scenes import boxes as geometry
from jaxatr.typing import Bool, Float, Int, Shaped


class Motion(NamedTuple):
    """A model of targets' motion; lengths are shares of a target's size, √(width · height).

    Attributes:
      place: standard deviation of a box's centre.
      size: standard deviation of a box's width and height.
      speed: standard deviation of the velocity per frame of a target that is new.
      change: standard deviation of the change of the velocity per frame.
      gate: the largest squared Mahalanobis distance of a box to its track; by default, 1 in 1000
        of a target's own boxes are farther (χ² of four degrees of freedom).
      patience: number of frames after which a target that was not found is given up.
    """

    place: float = 0.1
    size: float = 0.2
    speed: float = 0.5
    change: float = 0.1
    gate: float = 18.47
    patience: int = 5


class Tracker:
    """Tracks of targets in one sequence of frames.

    Centre, width and height are independent of each other, so each track has four filters of a
    value and its velocity instead of one with matrices.

    Attributes:
      motion: of the targets.
    """

    def __init__(self, motion: Motion = Motion()):  # noqa: B008
        """Starts before the first frame, without tracks."""
        self.motion = motion
        self._next = 0
        self._ids = np.zeros(0, int)
        self._missed = np.zeros(0, int)
        self._value, self._velocity = np.zeros((0, 4)), np.zeros((0, 4))
        # Variances of value and velocity, and their covariance.
        self._p00, self._p01, self._p11 = (np.zeros((0, 4)) for _ in range(3))

    def update(
        self, boxes: Shaped[np.ndarray, "n 4"], sure: Bool[np.ndarray, " n"] | None = None
    ) -> Int[np.ndarray, " n"]:
        """Takes the boxes of the next frame, and returns the track of each, counted from 0.

        Args:
          boxes: x0, y0, x1, y1.
          sure: whether each is a target by itself. One that is fits a track or begins one. One that
            is not only continues a track that had a box in the last frame and has no sure one now.
            None if all are.

        Returns:
          The number of each box's track; -1 for one that is not sure and continues none.

        Raises:
          ValueError: a box is empty or not finite.
        """
        boxes = np.asarray(boxes, float).reshape(-1, 4)
        if not (np.isfinite(boxes).all() and (geometry.area(boxes) > 0).all()):
            raise ValueError("got a box that is empty or not finite, wanted boxes of targets")
        measured = np.asarray(geometry.to_centres(boxes))
        certain = np.ones(len(boxes), bool) if sure is None else np.asarray(sure, bool)
        self._predict()
        every = np.arange(len(self._ids))
        rows, columns = self._assigned(measured, every, np.flatnonzero(certain))
        left = np.setdiff1d(every[self._missed == 0], rows)
        more = self._assigned(measured, left, np.flatnonzero(~certain))
        rows, columns = np.append(rows, more[0]), np.append(columns, more[1])
        self._correct(rows, measured[columns])
        self._missed += 1
        self._missed[rows] = 0
        ids = np.full(len(boxes), -1)
        ids[columns] = self._ids[rows]
        new = np.flatnonzero((ids < 0) & certain)
        ids[new] = self._next + np.arange(len(new))
        self._next += len(new)
        self._keep(self._missed <= self.motion.patience)
        self._begin(ids[new], measured[new])
        return ids

    def _predict(self) -> None:
        change = (self.motion.change * _scale(self._value)) ** 2
        self._value = self._value + self._velocity
        self._value[:, 2:] = np.maximum(self._value[:, 2:], 1e-3)
        self._p00 = self._p00 + 2 * self._p01 + self._p11 + change / 4
        self._p01 = self._p01 + self._p11 + change / 2
        self._p11 = self._p11 + change

    def _assigned(
        self,
        measured: Float[np.ndarray, "n 4"],
        tracks: Int[np.ndarray, " t"],
        boxes: Int[np.ndarray, " b"],
    ) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Returns rows of some tracks, and of those boxes among some that are assigned to them."""
        some = measured[boxes]
        spread = self._p00[tracks, None] + self._noise(some)[None]
        squared = ((some[None] - self._value[tracks, None]) ** 2 / spread).sum(axis=-1)
        likely = squared + np.log(spread).sum(axis=-1)  # a wide gate must not win for its width
        allowed = squared <= self.motion.gate
        # A pair that is not allowed costs more than all others, so most targets are assigned.
        most = 1 + 2 * np.abs(likely[allowed]).sum()
        rows, columns = linear_sum_assignment(np.where(allowed, likely, most))
        fits = allowed[rows, columns]
        return tracks[rows[fits]], boxes[columns[fits]]

    def _correct(self, rows: Int[np.ndarray, " m"], measured: Float[np.ndarray, "m 4"]) -> None:
        p00, p01 = self._p00[rows], self._p01[rows]
        total = p00 + self._noise(measured)
        error = measured - self._value[rows]
        self._value[rows] += p00 / total * error
        self._velocity[rows] += p01 / total * error
        self._p11[rows] -= p01**2 / total
        self._p01[rows] -= p00 * p01 / total
        self._p00[rows] -= p00**2 / total

    def _begin(self, ids: Int[np.ndarray, " m"], measured: Float[np.ndarray, "m 4"]) -> None:
        noise, none = self._noise(measured), np.zeros_like(measured)
        speed = np.broadcast_to((self.motion.speed * _scale(measured)) ** 2, measured.shape)
        self._ids = np.concatenate([self._ids, ids])
        self._missed = np.concatenate([self._missed, np.zeros(len(ids), int)])
        self._value = np.concatenate([self._value, measured])
        self._velocity = np.concatenate([self._velocity, none])
        self._p00 = np.concatenate([self._p00, noise])
        self._p01 = np.concatenate([self._p01, none])
        self._p11 = np.concatenate([self._p11, speed])

    def _keep(self, stay: np.ndarray) -> None:
        self._ids, self._missed = self._ids[stay], self._missed[stay]
        self._value, self._velocity = self._value[stay], self._velocity[stay]
        self._p00, self._p01, self._p11 = self._p00[stay], self._p01[stay], self._p11[stay]

    def _noise(self, measured: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 4"]:
        shares = np.array([self.motion.place] * 2 + [self.motion.size] * 2)
        return (shares * _scale(measured)) ** 2


def _scale(values: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 1"]:
    """Returns the sizes of targets, given by centre, width and height."""
    return np.sqrt(values[:, 2:3] * values[:, 3:4])
