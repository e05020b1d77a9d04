"""Random plans of tracks: lengths, ranges, aspects and views."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxatr.data.sources.simulated.render import View
from jaxatr.data.sources.simulated.sensor import BANDS
from jaxatr.data.sources.simulated.vehicles import FLEET

MOST_FRAMES = 72  # a full turn
_MOST_TRACKS = 1000
_NEAREST = 1000  # metres; any nearer, a vehicle does not fit the window
_PLAN, _SHARED, _FRAME = 1, 2, 3  # purposes of the random streams


class Track(NamedTuple):
    """A track.

    Attributes:
      number: unique among the tracks of both splits.
      views: in order of time.
    """

    number: int
    views: list[View]


@dataclass(frozen=True)
class Plan:
    """The distribution from which the tracks of a set are drawn.

    Attributes:
      tracks: number of tracks of each vehicle in each band.
      frames: the shortest and longest length of a track.
      starts: the least and greatest first range in metres.
      closing: metres between consecutive frames.
      seed: a non-negative integer.

    Raises:
      ValueError: a number is out of its range, or a track would come too near.
    """

    tracks: int
    frames: tuple[int, ...]
    starts: tuple[int, ...]
    closing: int
    seed: int

    def __post_init__(self) -> None:
        """Checks the values."""
        if not 1 <= self.tracks <= _MOST_TRACKS:
            raise ValueError(f"tracks: got {self.tracks}, wanted 1 to {_MOST_TRACKS}")
        if len(self.frames) != 2 or not 1 <= self.frames[0] <= self.frames[1] <= MOST_FRAMES:
            raise ValueError(
                f"frames: got {self.frames}, wanted the shortest and longest length of a track, "
                f"1 to {MOST_FRAMES}"
            )
        if self.closing < 1:
            raise ValueError(f"closing: got {self.closing}, wanted at least 1 metre")
        ascending = len(self.starts) == 2 and self.starts[0] <= self.starts[1]
        if not ascending or not len(self._first_ranges()):
            raise ValueError(
                f"starts: got {self.starts}, wanted two ranges in metres with a multiple of "
                f"closing={self.closing} between them"
            )
        last = int(self._first_ranges()[0]) - self.closing * (self.frames[1] - 1)
        if last < _NEAREST:
            raise ValueError(
                f"starts: a track of {self.frames[1]} frames would come as near as {last} m, "
                f"wanted {_NEAREST} m or more"
            )

    def track(self, part: int, vehicle: int, band: int, number: int) -> Track:
        """Draws one track.

        Args:
          part: 0 for the training split, 1 for the test split.
          vehicle: index into ``FLEET``.
          band: index into ``sensor.BANDS``.
          number: number of the track among those of the vehicle in this band.
        """
        own = (self.seed, part, vehicle, band, number)
        rng = np.random.default_rng(np.random.SeedSequence((*own, _PLAN)))
        frames = np.arange(rng.integers(self.frames[0], self.frames[1], endpoint=True))
        ranges = rng.choice(self._first_ranges()) - self.closing * frames
        steps = rng.integers(MOST_FRAMES) + rng.choice((-1, 1)) * frames
        aspects = 360 / MOST_FRAMES * (steps % MOST_FRAMES + 0.5 * part)
        views = [
            View(vehicle, float(aspect), int(range_m), band, (*own, frame, _FRAME), (*own, _SHARED))
            for frame, (aspect, range_m) in enumerate(zip(aspects, ranges, strict=True))
        ]
        shape = (2, len(FLEET), len(BANDS), _MOST_TRACKS)
        return Track(int(np.ravel_multi_index((part, vehicle, band, number), shape)), views)

    def _first_ranges(self) -> np.ndarray:
        ranges = np.arange(0, max(self.starts) + 1, self.closing)
        return ranges[ranges >= self.starts[0]]
