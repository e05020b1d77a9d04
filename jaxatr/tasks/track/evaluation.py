"""The evaluation of a recogniser of tracks: by track, by the mean of its chips, and by chip."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr import openset
from jaxatr.tasks.open_set import evaluation
from jaxatr.tasks.open_set.deciding import Deciding, decides, made_for
from jaxatr.tasks.open_set.evaluation import PARTS
from jaxatr.tasks.open_set.judged import judge
from jaxatr.tasks.open_set.scored import head
from jaxatr.typing import Int, PyTree, Shaped

TRACKS, MEAN, CHIPS = "all", "mean over chips", "single chips"


class PartOutputs(NamedTuple):
    """A network's outputs on the r tracks of a part and on their m chips.

    Attributes:
      tracks: on each track; None of a network without a recurrent part.
      chips: on each chip, track after track.
      lengths: ``[r]``, chips of each track.
    """

    tracks: openset.Outputs | None
    chips: openset.Outputs
    lengths: Int[np.ndarray, " r"]

    @property
    def mean(self) -> openset.Outputs:
        """The mean of each track's chips."""
        return openset.mean_outputs(self.chips, self.lengths)


class _Group(NamedTuple):
    """One way to look at the test data.

    Attributes:
      fitted: the scores.
      outputs: by part.
      values: part to score to ``[n]``.
      recorded: prefix of its arrays in ``scores.npz``; None if they follow from other arrays there.
    """

    fitted: openset.Fitted
    outputs: dict[str, openset.Outputs]
    values: dict[str, dict[str, np.ndarray]]
    recorded: str | None

    def arrays(self) -> dict[str, np.ndarray]:
        found = {} if self.recorded else self.fitted.arrays()  # the chips' models are not recorded
        for part, outputs in self.outputs.items():
            prefix = f"{part}_{self.recorded}"
            found |= evaluation.part_arrays(prefix, outputs, self.values[part])
        return found


@runtime_checkable  # the tests check annotations as they run
class ScoredTracks(Deciding, Protocol):
    """The task of a run on tracks whose outputs are scored."""

    recurrent: ClassVar[bool]

    def part_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> PartOutputs:
        """Computes the network's outputs on the tracks of a part and on their chips."""
        ...


def evaluate(
    task: ScoredTracks,
    variables: PyTree,
    scores: str | Collection[str] | None,
    workdir: Path | None = None,
    step: int | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Measures a network of tracks; see :meth:`jaxatr.tasks.track.TrackOpenSet.test`."""
    if scores not in (None, "all"):
        evaluation.choose(task, scores)  # refuses what cannot be, before anything is fitted
    made = made_for(task, variables, workdir, step) if decides(task.config) else None
    chosen = evaluation.choose(task, scores, made=made)
    needs = chosen.needs | evaluation.needs_of(made)
    found = {
        part: task.part_outputs(variables, part, needs) for part in PARTS if part in task.parts
    }
    training = None
    if chosen.needs_of_fit is not None:
        training = task.part_outputs(variables, "train", chosen.needs_of_fit)
    groups: dict[str, _Group] = {}
    if task.recurrent:
        held_out = found["validation"].tracks if "validation" in found else None
        fitted = _fit(chosen, training and training.tracks, held_out, variables, "")
        outputs = {part: one.tracks for part, one in found.items() if one.tracks is not None}
        values = {part: fitted.on(out) for part, out in outputs.items()}
        groups[TRACKS] = _Group(fitted, outputs, values, "")
    if not task.recurrent or task.config.track.chip_weight:
        prefix = "chip_" if task.recurrent else ""
        held_out = found["validation"].chips if "validation" in found else None
        fitted = _fit(chosen, training and training.chips, held_out, variables, prefix)
        chips = {part: one.chips for part, one in found.items()}
        values = {part: fitted.on(out) for part, out in chips.items()}
        outputs = {part: one.mean for part, one in found.items()}
        means = {part: _means(values[part], one.lengths) for part, one in found.items()}
        mean, recorded = (MEAN, None) if task.recurrent else (TRACKS, "")
        groups[mean] = _Group(fitted, outputs, means, recorded)
        groups[CHIPS] = _Group(fitted, chips, values, "chip_")
    figures, arrays = {}, {}
    for name, group in groups.items():
        test = group.outputs["test"]
        everything = np.ones(len(test.labels), bool)
        figures[name] = evaluation.measure(task, group.fitted, test, group.values, everything)
        if group.recorded is not None:
            arrays |= group.arrays()
    for part, one in found.items():
        arrays[f"{part}_id"] = evaluation.ids(task.parts[part])
        arrays[f"{part}_length"] = one.lengths
    measured = evaluation.summary(task, figures, chosen.scores)
    if made is not None:
        tested = found["test"]
        judge(made, tested.chips if tested.tracks is None else tested.tracks, measured, arrays)
    return measured, arrays


def _fit(
    chosen: evaluation.Chosen,
    training: openset.Outputs | None,
    validation: openset.Outputs | None,
    variables: PyTree,
    prefix: str,
) -> openset.Fitted:
    last = head(variables, prefix)
    return openset.fit_scores(
        chosen.scores, training, last, validation=validation, leave_out=chosen.leave_out
    )


def _means(
    values: dict[str, Shaped[np.ndarray, " m"]], lengths: Int[np.ndarray, " r"]
) -> dict[str, Shaped[np.ndarray, " r"]]:
    """Averages the scores of each track's chips."""
    return {name: openset.mean_over(score, lengths) for name, score in values.items()}
