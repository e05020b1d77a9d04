"""Open-set recognition of tracks: chips of one target, one after the other as the sensor closes in.

:class:`TrackOpenSet` puts an LSTM over the convolutional network's features of a track's chips.
:class:`TrackChips` is what it is compared with: the network of single chips, whose answers are
averaged over a track.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import data, models, openset, parallel
from jaxatr.config import Fields
from jaxatr.tasks.apply import apply_training
from jaxatr.tasks.examples import Part
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.exported import exportable
from jaxatr.tasks.open_set.fields import FIELDS as OF_SINGLE_CHIPS
from jaxatr.tasks.open_set.needs import COMPUTED
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.track.evaluation import PartOutputs, evaluate
from jaxatr.tasks.track.examples import TrackExamples
from jaxatr.tasks.track.fields import FIELDS
from jaxatr.training import Exportable, LossOutput, Phase, Target, TrainedRun
from jaxatr.typing import Batch, Config, Float, Int, PyTree


class TrackChips(OpenSet):
    """Trains the network of single chips on the shuffled chips of tracks.

    It takes as many steps of as many chips as :class:`TrackOpenSet` does; its outputs on a track
    are the mean over the track's chips. It is the task of a configuration of tracks whose
    ``track.hidden`` is 0.

    Attributes:
      parts: ``"train"``, ``"validation"``, ``"test"`` to the last chip of each track, which stands
        for it; :attr:`examples` has them all.
    """

    recurrent: ClassVar[bool] = False

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
        super().__init__(config)

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields."""
        return {**OF_SINGLE_CHIPS, **FIELDS}

    def open(self, config: Config) -> tuple[TrackExamples, dict[str, Part]]:
        """Opens the data, and finds :attr:`parts`."""
        examples = TrackExamples(config)
        return examples, examples.ends

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Opens this process's endless iterator of batches of single chips."""
        del phase
        return self.examples.chip_batches()

    @property
    def given(self) -> frozenset[str]:
        """Names of what scores may need beside the logits and a run on tracks can give."""
        return super().given - COMPUTED - {"image"}

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs on every track of a part, in its order.

        Args:
          variables: parameters and batch statistics, for one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: ``"features"``, if they are wanted beside the logits.
        """
        found = self.part_outputs(variables, part, needs)
        return found.mean if found.tracks is None else found.tracks

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs on what a recogniser takes one by one: tracks, or single chips.

        The arguments are those of :meth:`outputs`.
        """
        found = self.part_outputs(variables, part, needs)
        return found.chips if found.tracks is None else found.tracks

    def part_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> PartOutputs:
        """Computes the network's outputs on the tracks of a part and on their chips.

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
        """Computes the outputs on the chips of a batch of tracks, in test mode, as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps, *shape = tracks.shape
        chips: Any = self.module.apply(variables, tracks.reshape(-1, *shape))
        return _by_track(chips, count, steps)

    def test(
        self,
        variables: PyTree,
        *,
        scores: str | Collection[str] | None = None,
        workdir: Path | None = None,
        step: int | None = None,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Measures the network on the test tracks.

        Args:
          variables: parameters and batch statistics, for one device.
          scores: names of scores (:func:`jaxatr.openset.choose_scores`), or ``"all"``, which leaves
            out, with a warning, one that needs a gradient or cannot be fitted. Default,
            :data:`jaxatr.openset.DEFAULT` and the score that decides.
          workdir: the run's folder, for what was fitted to decide by; nothing is trained beside a
            run on tracks.
          step: of the checkpoint.

        Returns:
          ``(measured, arrays)``, as of :class:`~jaxatr.tasks.OpenSet`. The group ``all`` is of the
          tracks; ``mean over chips`` of the same tracks, each score the mean of its chips', and
          the class that of the largest mean logit; ``single chips`` of every chip by itself. A
          network without an LSTM has the mean under ``all``; one whose chips were not trained has
          ``all`` alone. In ``arrays``, ``…_chip_…`` are of the chips and ``…_length`` says how many
          of them each track has.

        Raises:
          ValueError: a score needs a gradient, or cannot be fitted to the training examples.
        """
        return evaluate(self, variables, scores, workdir, step)


class TrackOpenSet(TrackChips):
    """Trains a convolutional network with an LSTM on tracks, by equation 4 on each track.

    With ``track.chip_weight`` single chips are trained besides, by heads of their own on the same
    convolutional network.
    """

    recurrent = True
    predictor = "jaxatr.tasks.track.predictor:TrackRecogniser"
    usage = "predict --workdir={workdir} FOLDER..."

    @classmethod
    def of_config(cls, config: Config) -> type[OpenSet]:
        """Finds the task of a configuration: without an LSTM, that of single chips."""
        return cls if config.track.hidden > 0 else TrackChips

    @classmethod
    def network(cls, config: Config, record: Mapping[str, Any]) -> nn.Module:
        """Builds the network."""
        return models.build_track(config.model, len(record["split"]["known"]), config.track.hidden)

    @classmethod
    def exportable(cls, run: TrainedRun, *, score: str | None = None) -> Exportable:
        """Exports the outputs on tracks, with their lengths as a second input."""
        module = run.module

        def network(variables: PyTree, tracks: Any, lengths: Any) -> models.OpenSetOutput:
            return module.apply(variables, tracks, lengths=lengths).track

        return exportable(run, network, score)._replace(
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
        return self._pretrained.put_into(params, variables)

    def batches(self, phase: Phase) -> data.BatchIterator:
        """Opens this process's endless iterator of batches of tracks."""
        del phase
        return self.examples.track_batches()

    def loss(
        self, params: PyTree, model_state: PyTree, batch: Batch, key: jax.Array, step: jax.Array
    ) -> LossOutput:
        """Sums equation 4 over one device's share of a batch.

        A track is flipped, shifted and turned as one. The loss of its chips is their mean.
        """
        count, steps, *shape = batch["image"].shape
        images = data.augment(
            key,
            self.examples.normalize(batch["image"]).reshape(count * steps, *shape),
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

    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs on a batch of tracks, in test mode; of chips as ``chip_…``."""
        tracks = self.examples.normalize(batch["image"])
        count, steps = tracks.shape[:2]
        out: Any = self.module.apply(variables, tracks, lengths=batch["length"])
        return out.track._asdict() | _by_track(out.chips, count, steps)


def _by_track(chips: models.OpenSetOutput, count: int, steps: int) -> dict[str, jax.Array]:
    """Sorts the outputs on chips ``[count * steps, …]`` by track, ``[count, steps, …]``."""
    return {
        f"chip_{name}": values.reshape(count, steps, -1) for name, values in chips._asdict().items()
    }


def _mean_of_track(values: jax.Array, lengths: Int[jax.Array, " b"]) -> Float[jax.Array, " b"]:
    """Averages over each track's chips, values ``[b * t]``."""
    values = values.reshape(len(lengths), -1).astype(jnp.float32)
    inside = jnp.arange(values.shape[1]) < lengths[:, None]
    return jnp.sum(jnp.where(inside, values, 0), axis=1) / lengths
