"""Open-set recognition of tracks: chips of one target, one after the other as the sensor closes in.

The outputs of a convolutional network with an LSTM on a track stand beside the mean of those on its
chips one by one.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, models, openset, parallel
from jaxatr.config import Fields
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.examples import Part
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.fields import FIELDS as OF_SINGLE_CHIPS
from jaxatr.tasks.open_set.needs import COMPUTED
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.track.evaluation import PartOutputs, evaluate
from jaxatr.tasks.track.examples import TrackExamples
from jaxatr.tasks.track.fields import FIELDS
from jaxatr.training import LossOutput, Phase
from jaxatr.typing import Batch, Config, Float, Int, PyTree


class TrackOpenSet(OpenSet):
    """Trains a convolutional network with an LSTM on tracks, by equation 4 on each track.

    With ``track.chip_weight`` single chips are trained besides, by heads of their own on the same
    convolutional network. With ``track.hidden = 0`` there is no LSTM: the network of
    :class:`~jaxatr.tasks.open_set.OpenSet` is trained on shuffled single chips, in as many steps of
    as many chips, and what it says of a track is the mean over its chips.

    Attributes:
      parts: ``"train"``, ``"validation"``, ``"test"`` to the last chip of each track, which stands
        for it; :attr:`examples` has them all.
    """

    examples: TrackExamples

    def __init__(self, config: Config):
        """Opens the data and describes the training.

        Args:
          config: the run's configuration.

        Raises:
          ValueError: the data is missing, has no tracks or does not fit the configuration, or a
            field is wrong.
        """
        fields = config.track
        check_limits(
            config,
            track__frames=(fields.frames >= 1, "at least 1"),
            track__hidden=(fields.hidden >= 0, "0 (no LSTM) or more"),
            track__chip_weight=(fields.chip_weight >= 0, "0 (off) or more"),
        )
        if config.open_set.negatives:
            raise ValueError("open_set.negatives: single images are no tracks, got some")
        self.recurrent = fields.hidden > 0
        super().__init__(config)

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields."""
        return {**OF_SINGLE_CHIPS, **FIELDS}

    def open(self, config: Config) -> tuple[TrackExamples, dict[str, Part]]:
        """Returns the data, and :attr:`parts`."""
        examples = TrackExamples(config)
        return examples, examples.ends

    def build(self, config: Config, num_classes: int) -> Any:
        """Returns the network."""
        if not self.recurrent:
            return super().build(config, num_classes)
        return models.build_track(config.model, num_classes, config.track.hidden)

    def init(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns freshly drawn parameters and batch statistics, the backbone's perhaps read."""
        if not self.recurrent:
            return super().init(key)
        variables = dict(self.module.init(key, jnp.zeros((1, 1, *self.examples.image_shape))))
        params = variables.pop("params")
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> Any:
        """Returns this process's endless iterator of batches of tracks, or of single chips."""
        del phase
        return self.examples.track_batches() if self.recurrent else self.examples.chip_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Returns equation 4 summed over one device's share of a batch.

        A track is flipped, shifted and turned as one. The loss of its chips is their mean.
        """
        if not self.recurrent:
            return super().loss(params, model_state, batch, key, step)
        count, steps, *shape = batch["image"].shape
        images = data.augment(
            key,
            self.normalize(batch["image"]).reshape(count * steps, *shape),
            jnp.repeat(batch["id"][:, 0], steps),
            jnp.repeat(batch["epoch"], steps),
            **self.config.augment,
        )
        tracks, lengths = images.reshape(count, steps, *shape), batch["length"]
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

    @property
    def given(self) -> frozenset[str]:
        """Names of what scores may need beside the logits and a run on tracks can give."""
        return super().given - COMPUTED

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Returns the network's outputs on every track of a part, in its order.

        Args:
          variables: parameters and batch statistics, for one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: ``"features"``, if they are wanted beside the logits.
        """
        found = self.part_outputs(variables, part, needs)
        return found.mean if found.tracks is None else found.tracks

    def part_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> PartOutputs:
        """Returns the network's outputs on the tracks of a part and on their chips.

        Args:
          variables: parameters and batch statistics, for one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: ``"features"``, if they are wanted beside the logits.
        """
        rows: dict[str, list[np.ndarray]] = {}
        batches = self.examples.eval_track_batches(part)
        for batch, out in parallel.map_batches(self.infer, variables, batches):
            inside = np.arange(batch["image"].shape[1]) < batch["length"][:, None]
            inside &= batch["mask"][:, None]
            for name, values in out.items():
                if name.removeprefix("chip_") in ("logits", "open_logits", *needs):
                    chosen = inside if name.startswith("chip_") else batch["mask"]
                    rows.setdefault(name, []).append(values[chosen])
        columns = {name: np.concatenate(parts) for name, parts in rows.items()}
        labels, lengths = self.parts[part].labels, self.examples.tracks[part].lengths

        def outputs(prefix: str, labels: np.ndarray) -> openset.Outputs:
            logits, open_logits = columns[f"{prefix}logits"], columns[f"{prefix}open_logits"]
            more = {name: columns[f"{prefix}{name}"] for name in needs if prefix + name in columns}
            return openset.Outputs(logits, open_logits, labels, more)

        return PartOutputs(
            outputs("", labels) if self.recurrent else None,
            outputs("chip_", np.repeat(labels, lengths)),
            lengths,
        )

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Returns the outputs on a batch of tracks, in test mode; of chips as ``chip_…``."""
        tracks = self.normalize(batch["image"])
        count, steps, *shape = tracks.shape
        if self.recurrent:
            out = self.module.apply(variables, tracks, lengths=batch["length"])
            chips, found = out.chips, out.track._asdict()
        else:
            chips, found = self.module.apply(variables, tracks.reshape(-1, *shape)), {}
        return found | {
            f"chip_{name}": values.reshape(count, steps, -1)
            for name, values in chips._asdict().items()
        }

    def test(
        self,
        variables: PyTree,
        *,
        scores: str | Collection[str] | None = None,
        workdir: Path | None = None,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures the network on the test tracks.

        Args:
          variables: parameters and batch statistics, for one device.
          scores: names of scores (:func:`jaxatr.openset.choose_scores`), or ``"all"``, which leaves
            out, with a warning, one that needs a gradient or cannot be fitted. Default,
            :data:`jaxatr.openset.DEFAULT`.
          workdir: the run's folder; nothing is trained beside a run on tracks.

        Returns:
          ``(measured, arrays)``, as :meth:`jaxatr.tasks.OpenSet.test` does. The group ``all`` is of
          the tracks; ``mean over chips`` of the same tracks, each score the mean of its chips', and
          the class that of the largest mean logit; ``single chips`` of every chip by itself. A
          network without an LSTM has the mean under ``all``; one whose chips were not trained has
          ``all`` alone. In ``arrays``, ``…_chip_…`` are of the chips and ``…_length`` says how many
          of them each track has.

        Raises:
          ValueError: a score needs a gradient, or cannot be fitted to the training examples.
        """
        del workdir
        return evaluate(self, variables, scores)


def _mean_of_track(values: jax.Array, lengths: Int[jax.Array, " b"]) -> Float[jax.Array, " b"]:
    """Returns the mean over each track's chips, of values ``[b * t]``."""
    values = values.reshape(len(lengths), -1).astype(jnp.float32)
    inside = jnp.arange(values.shape[1]) < lengths[:, None]
    return jnp.sum(jnp.where(inside, values, 0), axis=1) / lengths
