"""Single chips of tracks: the network that one of tracks is compared with."""

from typing import Any

import jax

from jaxatr import data, openset
from jaxatr.tasks.track.evaluation import TRACKS, Group, PartOutputs, Seen
from jaxatr.tasks.track.of_tracks import OfTracks, by_track
from jaxatr.training import Phase
from jaxatr.typing import Batch, PyTree


class TrackChips(OfTracks):
    """Trains the network of single chips on the shuffled chips of tracks.

    It takes as many steps of as many chips as :class:`~jaxatr.tasks.track.TrackOpenSet` does; its
    outputs on a track are the mean over the track's chips. It is the task of a configuration of
    tracks whose ``track.hidden`` is 0.
    """

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Opens this process's endless iterator of batches of single chips."""
        del phase
        return self.examples.chip_batches()

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs on the chips of a batch of tracks, in test mode, as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps, *shape = tracks.shape
        chips: Any = self.module.apply(variables, tracks.reshape(-1, *shape))
        return by_track(chips, count, steps)

    def groups(self, seen: Seen) -> dict[str, Group]:
        """Lists the mean over each track's chips, which stands for the track, and the chips."""
        return seen.chips("", mean=TRACKS, recorded="")

    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Picks the chips: a recogniser takes single images."""
        return found.chips
