"""Data and evaluation of open-set recognition of tracks, shared by all networks of tracks."""

import abc
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import models, openset, parallel
from jaxatr.config import Fields
from jaxatr.resolve import imported
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.fields import FIELDS as OF_SINGLE_CHIPS
from jaxatr.tasks.open_set.needs import COMPUTED
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import Part
from jaxatr.tasks.track.examples import TrackExamples
from jaxatr.tasks.track.fields import FIELDS
from jaxatr.tasks.track.outputs import PartOutputs
from jaxatr.typing import Batch, Config, PyTree


class OfTracks(OpenSet):
    """A base class that opens tracks and evaluates a network on them; subclasses train the network.

    Attributes:
      parts: the last chip of each track in ``"train"``, ``"validation"`` and ``"test"``;
        :attr:`examples` has all chips.
    """

    evaluator = "jaxatr.recognition.track_evaluation:evaluate"
    title = "track recognition"
    examples: TrackExamples

    def __init__(self, config: Config):
        """Opens the data and sets up the training.

        Raises:
          ValueError: the data is missing, has no tracks or does not match the configuration, or a
            field is invalid.
        """
        fields = config.track
        check_limits(
            config,
            track__frames=(fields.frames >= 1, "at least 1"),
            track__hidden=(fields.hidden >= 0, "0 (no LSTM) or more"),
            track__chip_weight=(fields.chip_weight >= 0, "0 (off) or more"),
        )
        if config.open_set.negatives:
            raise ValueError("open_set.negatives: not supported for tracks")
        super().__init__(config)

    @classmethod
    def fields(cls) -> Fields:
        """Declares the task's own configuration fields."""
        return {**OF_SINGLE_CHIPS, **FIELDS}

    def open(self, config: Config) -> tuple[TrackExamples, dict[str, Part]]:
        """Opens the data, and returns it with :attr:`parts`."""
        examples = TrackExamples(config)
        return examples, examples.ends

    @property
    def given(self) -> frozenset[str]:
        """Names of the inputs of scores, other than logits, that tracks can provide."""
        return super().given - COMPUTED - {"image"}

    @abc.abstractmethod
    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs for a batch of tracks, in test mode.

        Returns:
          Outputs ``[b, …]`` for each track, if the network has them, and outputs ``[b, t, …]`` for
          each chip as ``chip_…``.
        """

    @abc.abstractmethod
    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Returns the outputs for the recogniser's inputs: tracks or single chips."""

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs for every track of a part, in order.

        Args:
          variables: parameters and batch statistics, on one device.
          part: name of the part.
          needs: ``"features"``, if needed in addition to the logits.
        """
        return self.part_outputs(variables, part, needs).tracks

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for the recogniser's inputs: tracks or single chips.

        Args:
          variables: parameters and batch statistics, on one device.
          part: name of the part.
          needs: ``"features"``, if needed in addition to the logits.
        """
        return self.decided(self.part_outputs(variables, part, needs))

    def sampled_outputs(
        self, variables: PyTree, most: int, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs for all training tracks; they are not sampled.

        Scores of tracks need no more than pooled features, which are small.

        Args:
          variables: parameters and batch statistics, on one device.
          most: ignored.
          needs: see :meth:`decided_outputs`.
        """
        return self.decided_outputs(variables, "train", needs)

    def part_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> PartOutputs:
        """Computes the network's outputs for the tracks of a part and for their chips.

        Args:
          variables: parameters and batch statistics, on one device.
          part: ``"train"``, ``"validation"`` or ``"test"``.
          needs: ``"features"``, if needed in addition to the logits.
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

        chips = outputs("chip_", np.repeat(labels, lengths))
        of_tracks = "logits" in columns  # otherwise it is a network of single chips
        tracks = outputs("", labels) if of_tracks else openset.mean_outputs(chips, lengths)
        return PartOutputs(tracks, chips, lengths)

    def test(
        self,
        variables: PyTree,
        *,
        scores: str | Collection[str] | None = None,
        workdir: Path | None = None,
        step: int | None = None,
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Evaluates the network on the test tracks.

        Args:
          variables: parameters and batch statistics, on one device.
          scores: names of scores (:func:`jaxatr.openset.choose_scores`), or ``"all"``, which skips
            scores that need a gradient or cannot be fitted, with a warning. By default
            :data:`jaxatr.openset.DEFAULT` and the score that decides.
          workdir: the run's folder, from which the fitted decision is read.
          step: step of the checkpoint.

        Returns:
          ``(measured, arrays)`` in the form of :meth:`jaxatr.tasks.OpenSet.test`. The group ``all``
          evaluates tracks. The group ``mean over chips`` evaluates the same tracks, by the mean of
          each score over their chips and the class of the largest mean logit. The group
          ``single chips`` evaluates every chip separately. For a network without an LSTM, ``all``
          is the mean over chips. If heads for chips were not trained, there is only ``all``. In
          ``arrays``, ``…_chip_…`` are for chips, and ``…_length`` is the number of chips of each
          track.

        Raises:
          ValueError: a score needs a gradient, or cannot be fitted to the training examples.
        """
        return imported(self.evaluator)(self, variables, scores, workdir, step)


def by_track(chips: models.OpenSetOutput, count: int, steps: int) -> dict[str, jax.Array]:
    """Reshapes outputs for chips ``[count * steps, …]`` to tracks, ``[count, steps, …]``."""
    return {
        f"chip_{name}": values.reshape(count, steps, -1) for name, values in chips._asdict().items()
    }
