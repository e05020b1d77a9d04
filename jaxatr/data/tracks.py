"""Tracks: chips of one target in order of time."""

from typing import NamedTuple

import numpy as np

from jaxatr.data.dataset import Split
from jaxatr.typing import Int

TRACK, FRAME = "track", "frame"


class Tracks(NamedTuple):
    """Tracks among some of a split's examples.

    Attributes:
      members: ``[r, t]``, positions among these examples, in order of time. Shorter tracks are
        padded by repeating their chips from the start, so that computations over a whole batch,
        such as batch statistics, see real chips only.
      lengths: ``[r]``, number of positions that belong to each track.
    """

    members: Int[np.ndarray, "r t"]
    lengths: Int[np.ndarray, " r"]

    @property
    def last(self) -> Int[np.ndarray, " r"]:
        """The position of each track's last chip."""
        return self.members[np.arange(len(self.lengths)), self.lengths - 1]


def tracks_of(split: Split, indices: Int[np.ndarray, " n"], *, longest: int) -> Tracks:
    """Groups examples of a split into tracks.

    Args:
      split: a split with the columns ``track`` and ``frame``.
      indices: ``[n]``, numbers of the examples.
      longest: the largest number of chips in a track; longer tracks are cut into pieces.

    Raises:
      ValueError: the split has no tracks, or ``longest`` is less than 1.
    """
    check_tracks(split)
    if longest < 1:
        raise ValueError(f"longest: got {longest}, wanted at least 1 chip")
    number, frame = (split.columns[name][indices] for name in (TRACK, FRAME))
    order = np.lexsort((frame, number))
    _, starts = np.unique(number[order], return_index=True)
    pieces = [
        track[start : start + longest]
        for track in np.split(order, starts[1:])
        for start in range(0, len(track), longest)
    ]
    most = max(map(len, pieces))
    members = np.stack([np.resize(piece, most) for piece in pieces])
    return Tracks(members, np.array([len(piece) for piece in pieces], np.int32))


def check_tracks(split: Split) -> None:
    """Checks that a split has tracks.

    Raises:
      ValueError: a column is missing.
    """
    for name in (TRACK, FRAME):
        if name not in split.columns:
            raise ValueError(
                f"split {split.name!r} has no column {name!r}: wanted data with tracks, such as "
                "simulated_tracks"
            )
