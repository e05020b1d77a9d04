"""Open-set recognition of tracks, which are consecutive chips of one target during an approach.

:class:`TrackOpenSet` runs an LSTM over the convolutional network's features of a track's chips. Its
baseline is :class:`~jaxatr.tasks.track.TrackChips`, a network of single chips whose outputs are
averaged over each track.
"""

from collections.abc import Collection, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, models, openset
from jaxatr.resolve import imported
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.open_set.needs import binary
from jaxatr.tasks.track.chips import TrackChips
from jaxatr.tasks.track.of_tracks import OfTracks, by_track
from jaxatr.tasks.track.outputs import PartOutputs
from jaxatr.training import Exportable, LossOutput, Phase, Target, TrainedRun
from jaxatr.typing import Batch, Config, Float, Int, PyTree


class TrackOpenSet(OfTracks):
    """Trains a convolutional network with an LSTM on tracks, with the loss of equation 4.

    With ``track.chip_weight``, it also trains separate heads for single chips on the same
    convolutional network.
    """

    predictor = "jaxatr.recognition.tracks:TrackRecogniser"
    usage = "predict --workdir={workdir} FOLDER..."

    @classmethod
    def of_config(cls, config: Config) -> type[OfTracks]:
        """Returns the task of a configuration; without an LSTM, that of single chips."""
        return cls if config.track.hidden > 0 else TrackChips

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> nn.Module:
        """Builds the network."""
        return models.build_track(config.model, len(record["split"]["known"]), config.track.hidden)

    @classmethod
    def exportable(
        cls, run: TrainedRun, *, score: str | None = None, source: str | None = None
    ) -> Exportable:
        """Returns a network of tracks for ONNX export, with their lengths as a second input."""
        module = run.module

        def network(
            variables: PyTree, inputs: tuple[jax.Array, ...], needs: Collection[str]
        ) -> Mapping[str, jax.Array]:
            del needs  # a network of tracks has no further outputs
            tracks, lengths = inputs
            return module.apply(variables, run.normalize(tracks), lengths=lengths).track._asdict()

        given = binary(run.config) | {"features"}
        return imported(cls.exporter)(run, network, score, given, source)._replace(
            frames=run.config.track.frames, further={"lengths": np.ones(1, np.int32)}
        )

    @classmethod
    def classifier(cls, run: TrainedRun) -> Target:
        """Raises an error: explanations need a classifier of single images."""
        raise ValueError(f"{run.workdir}: wanted a classifier of single images, got one of tracks")

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Initialises parameters and batch statistics, with any pretrained backbone."""
        variables = dict(self.module.init(key, jnp.zeros((1, 1, *self.examples.image_shape))))
        params = variables.pop("params")
        models.check_freeze(self.config.model.freeze, params)
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Returns this process's endless iterator of batches of tracks."""
        del phase
        return self.examples.track_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Computes equation 4, summed over one device's part of a batch.

        All chips of a track are flipped, shifted and rotated together, but their boxes are
        perturbed individually. The loss of a track's chips is their mean.
        """
        count, steps, *shape = batch["image"].shape
        # In a balanced pass, each copy of a track is augmented anew.
        views = "epoch" if self.examples.balance == data.UNBALANCED else "draw"
        images = self.examples.augment(
            key,
            self.examples.normalize(batch["image"]).reshape(count * steps, *shape),
            jnp.repeat(batch["id"][:, 0], steps),
            jnp.repeat(batch[views], steps),
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
        values["loss"] += self.config.track.chip_weight * values["chip_loss"]
        weights = self._objective.weights(labels)
        sums = {}
        for name, value in values.items():
            shares = jnp.ones(count) if name.endswith("accuracy") else weights
            sums[name] = jnp.sum(shares * value), jnp.sum(shares)
        total, rows = sums.pop("loss")
        return LossOutput(total, rows, sums, model_state)

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs for a batch of tracks in test mode, and for chips as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps = tracks.shape[:2]
        out: Any = self.module.apply(variables, tracks, lengths=batch["length"])
        return out.track._asdict() | by_track(out.chips, count, steps)

    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Returns the outputs for tracks."""
        return found.tracks


def _mean_of_track(values: jax.Array, lengths: Int[jax.Array, " b"]) -> Float[jax.Array, " b"]:
    """Averages values ``[b * t]`` over each track's chips."""
    values = values.reshape(len(lengths), -1).astype(jnp.float32)
    inside = jnp.arange(values.shape[1]) < lengths[:, None]
    return jnp.sum(jnp.where(inside, values, 0), axis=1) / lengths
