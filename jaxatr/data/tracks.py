"""Chips that are one track, in the order of time."""

from typing import NamedTuple

import numpy as np

from jaxatr.data.dataset import Split
from jaxatr.typing import Int

TRACK, FRAME = "track", "frame"


class Tracks(NamedTuple):
    """Tracks of some of a split's examples.

    Attributes:
      members: ``[r, t]``, positions among these examples, each track's in the order of time. A
        shorter track is filled up with its own chips from its first on, so that what runs over a
        whole batch, such as batch statistics, sees real chips alone.
      lengths: ``[r]``, how many of them are the track.
    """

    members: Int[np.ndarray, "r t"]
    lengths: Int[np.ndarray, " r"]

    @property
    def last(self) -> Int[np.ndarray, " r"]:
        """The position of each track's last chip."""
        return self.members[np.arange(len(self.lengths)), self.lengths - 1]


def tracks_of(split: Split, indices: Int[np.ndarray, " n"], *, longest: int) -> Tracks:
    """Returns the tracks that some examples of a split make up.

    Args:
      split: with the columns ``track`` and ``frame``.
      indices: ``[n]``, which of its examples.
      longest: chips; a longer track is cut into pieces of so many, the last perhaps shorter.

    Raises:
      ValueError: the split does not say which track a chip is of, or ``longest`` is less than 1.
    """
    check_tracks(split)
    if longest < 1:
        raise ValueError(f"longest: got {longest}, wanted at least 1 chip")
    number, frame = (split.columns[name][indices] for name in (TRACK, FRAME))
    order = np.lexsort((frame, number))
    _, starts = np.unique(number[order], return_index=True)
    pieces = [
        whole[start : start + longest]
        for whole in np.split(order, starts[1:])
        for start in range(0, len(whole), longest)
    ]
    most = max(map(len, pieces))
    members = np.stack([np.resize(piece, most) for piece in pieces])
    return Tracks(members, np.array([len(piece) for piece in pieces], np.int32))


def check_tracks(split: Split) -> None:
    """Refuses a split that does not say which track a chip is of."""
    for name in (TRACK, FRAME):
        if name not in split.columns:
            raise ValueError(
                f"split {split.name!r} has no column {name!r}: wanted data with tracks, such as "
                "simulated_tracks"
            )
