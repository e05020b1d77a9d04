"""A network of single chips, as a baseline for networks of tracks."""

from typing import Any

import jax

from jaxatr import data, openset
from jaxatr.tasks.track.of_tracks import OfTracks, by_track
from jaxatr.tasks.track.outputs import PartOutputs
from jaxatr.training import Phase
from jaxatr.typing import Batch, PyTree


class TrackChips(OfTracks):
    """Trains a network of single chips on the shuffled chips of tracks.

    The number of steps and of chips per step is that of :class:`~jaxatr.tasks.track.TrackOpenSet`.
    The outputs for a track are the means over its chips. This is the task of configurations of
    tracks with ``track.hidden`` 0.
    """

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of single chips."""
        del phase
        return self.examples.chip_batches()

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs for the chips of a batch of tracks, in test mode, as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps, *shape = tracks.shape
        chips: Any = self.module.apply(variables, tracks.reshape(-1, *shape))
        return by_track(chips, count, steps)

    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Returns the outputs for chips, because the recogniser takes single images."""
        return found.chips
