"""Open-set recognition of tracks: chips of one target, one after the other as the sensor closes in.

:class:`TrackOpenSet` puts an LSTM over the convolutional network's features of a track's chips. It
is compared with :class:`~jaxatr.tasks.track.TrackChips`, the network of single chips, whose answers
are averaged over a track.
"""

from collections.abc import Collection, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, models, openset
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.open_set.exported import exportable
from jaxatr.tasks.track.chips import TrackChips
from jaxatr.tasks.track.evaluation import MEAN, TRACKS, Group, PartOutputs, Seen
from jaxatr.tasks.track.of_tracks import OfTracks, by_track
from jaxatr.training import Exportable, LossOutput, Phase, Target, TrainedRun
from jaxatr.typing import Batch, Config, Float, Int, PyTree


class TrackOpenSet(OfTracks):
    """Trains a convolutional network with an LSTM on tracks, by equation 4 on each track.

    With ``track.chip_weight`` single chips are trained besides, by heads of their own on the same
    convolutional network.
    """

    predictor = "jaxatr.tasks.track.predictor:TrackRecogniser"
    usage = "predict --workdir={workdir} FOLDER..."

    @classmethod
    def of_config(cls, config: Config) -> type[OfTracks]:
        """Finds the task of a configuration: without an LSTM, that of single chips."""
        return cls if config.track.hidden > 0 else TrackChips

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> nn.Module:
        """Builds the network."""
        return models.build_track(config.model, len(record["split"]["known"]), config.track.hidden)

    @classmethod
    def exportable(
        cls, run: TrainedRun, *, score: str | None = None, source: str | None = None
    ) -> Exportable:
        """Exports the outputs on tracks, with their lengths as a second input."""
        module = run.module

        def network(
            variables: PyTree, inputs: tuple[jax.Array, ...], needs: Collection[str]
        ) -> Mapping[str, jax.Array]:
            del needs  # a network of tracks gives no more than its outputs
            tracks, lengths = inputs
            return module.apply(variables, run.normalize(tracks), lengths=lengths).track._asdict()

        given = cls._binary(run.config) | {"features"}
        return exportable(run, network, score, given, source)._replace(
            frames=run.config.track.frames, further={"lengths": np.ones(1, np.int32)}
        )

    @classmethod
    def classifier(cls, run: TrainedRun) -> Target:
        """Refuses: an explanation is of a single image."""
        raise ValueError(f"{run.workdir}: wanted a classifier of single images, got one of tracks")

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Draws parameters and batch statistics; the backbone's may be read."""
        variables = dict(self.module.init(key, jnp.zeros((1, 1, *self.examples.image_shape))))
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Opens this process's endless iterator of batches of tracks."""
        del phase
        return self.examples.track_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Sums equation 4 over one device's share of a batch.

        A track is flipped, shifted and turned as one; each of its chips has a box of its own. The
        loss of its chips is their mean.
        """
        count, steps, *shape = batch["image"].shape
        images = self.examples.augment(
            key,
            self.examples.normalize(batch["image"]).reshape(count * steps, *shape),
            jnp.repeat(batch["id"][:, 0], steps),
            jnp.repeat(batch["epoch"], steps),
            boxes=batch["id"].reshape(-1),
        )
        tracks, lengths = images.reshape(count, steps, *images.shape[1:]), batch["length"]
        out, model_state = apply_training(
            self.module, params, model_state, tracks, key, step, lengths=lengths
        )
        labels = batch["label"][:, 0]
        values = self.example_losses(out.track.logits, out.track.open_logits, labels)
        own, chips = jnp.repeat(labels, steps), out.chips
        chip_losses = self.example_losses(chips.logits, chips.open_logits, own)["loss"]
        values["chip_loss"] = _mean_of_track(chip_losses, lengths)
        values["chip_accuracy"] = _mean_of_track(jnp.argmax(chips.logits, axis=-1) == own, lengths)
        values["closed_accuracy"] = jnp.argmax(out.track.logits, axis=-1) == labels
        total = values.pop("loss") + self.config.track.chip_weight * values["chip_loss"]
        rows = jnp.float32(count)
        sums = {name: (jnp.sum(value, dtype=jnp.float32), rows) for name, value in values.items()}
        return LossOutput(jnp.sum(total), rows, sums, model_state)

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs on a batch of tracks, in test mode; of chips as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps = tracks.shape[:2]
        out: Any = self.module.apply(variables, tracks, lengths=batch["length"])
        return out.track._asdict() | by_track(out.chips, count, steps)

    def groups(self, seen: Seen) -> dict[str, Group]:
        """Lists the tracks, and where they were trained, the mean over chips and the chips."""
        tracks = {TRACKS: seen.tracks()}
        if not self.config.track.chip_weight:
            return tracks
        return tracks | seen.chips("chip_", mean=MEAN, recorded=None)

    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Picks the tracks."""
        return found.tracks


def _mean_of_track(values: jax.Array, lengths: Int[jax.Array, " b"]) -> Float[jax.Array, " b"]:
    """Averages over each track's chips, values ``[b * t]``."""
    values = values.reshape(len(lengths), -1).astype(jnp.float32)
    inside = jnp.arange(values.shape[1]) < lengths[:, None]
    return jnp.sum(jnp.where(inside, values, 0), axis=1) / lengths
