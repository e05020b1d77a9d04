"""The part of open-set recognition of tracks that any network of them has: data, and evaluation."""

import abc
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxatr import models, openset, parallel
from jaxatr.config import Fields
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.fields import FIELDS as OF_SINGLE_CHIPS
from jaxatr.tasks.open_set.needs import COMPUTED
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import Part
from jaxatr.tasks.track.evaluation import Group, PartOutputs, Seen, evaluate
from jaxatr.tasks.track.examples import TrackExamples
from jaxatr.tasks.track.fields import FIELDS
from jaxatr.typing import Batch, Config, PyTree


class OfTracks(OpenSet):
    """Opens tracks and measures a network on them; a subclass trains the network.

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
        super().__init__(config)

    @classmethod
    def fields(cls) -> Fields:
        """Declares the kind's own configuration fields."""
        return {**OF_SINGLE_CHIPS, **FIELDS}

    def open(self, config: Config) -> tuple[TrackExamples, dict[str, Part]]:
        """Opens the data, and finds :attr:`parts`."""
        examples = TrackExamples(config)
        return examples, examples.ends

    @property
    def given(self) -> frozenset[str]:
        """Names of what scores may need beside the logits and a run on tracks can give."""
        return super().given - COMPUTED - {"image"}

    @abc.abstractmethod
    def infer(self, variables: PyTree, batch: Batch) -> dict[str, jax.Array]:
        """Computes the outputs on a batch of tracks, in test mode.

        Returns:
          ``[b, …]`` of each track, where the network gives them, and as ``chip_…`` ``[b, t, …]`` of
          each chip.
        """

    @abc.abstractmethod
    def groups(self, seen: Seen) -> dict[str, Group]:
        """Sorts an evaluation's outputs into groups, by name."""

    @abc.abstractmethod
    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Picks the outputs on what a recogniser takes one by one: tracks, or single chips."""

    def outputs(self, variables: PyTree, part: str, needs: Collection[str] = ()) -> openset.Outputs:
        """Computes the network's outputs on every track of a part, in its order.

        The arguments are those of :meth:`part_outputs`.
        """
        return self.part_outputs(variables, part, needs).tracks

    def decided_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> openset.Outputs:
        """Computes the outputs on what a recogniser takes one by one: tracks, or single chips.

        The arguments are those of :meth:`part_outputs`.
        """
        return self.decided(self.part_outputs(variables, part, needs))

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

        chips = outputs("chip_", np.repeat(labels, lengths))
        own = "logits" in columns  # else the network is of chips alone
        tracks = outputs("", labels) if own else openset.mean_outputs(chips, lengths)
        return PartOutputs(tracks, chips, lengths)

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


def by_track(chips: models.OpenSetOutput, count: int, steps: int) -> dict[str, jax.Array]:
    """Sorts the outputs on chips ``[count * steps, …]`` by track, ``[count, steps, …]``."""
    return {
        f"chip_{name}": values.reshape(count, steps, -1) for name, values in chips._asdict().items()
    }
