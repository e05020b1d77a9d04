"""The evaluation of a recogniser of tracks: by track, by the mean of its chips, and by chip."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jaxatr import openset
from jaxatr.tasks.open_set import evaluation
from jaxatr.tasks.open_set.deciding import decides, made_for
from jaxatr.tasks.open_set.evaluation import PARTS
from jaxatr.tasks.open_set.judged import judge
from jaxatr.tasks.open_set.scored import Deciding, head
from jaxatr.tasks.parts import BOX_OFF
from jaxatr.typing import Int, PyTree, Shaped

TRACKS, MEAN, CHIPS = "all", "mean over chips", "single chips"


class PartOutputs(NamedTuple):
    """A network's outputs on the r tracks of a part and on their m chips.

    Attributes:
      tracks: on each track; of a network of single chips, the mean of the track's chips.
      chips: on each chip, track after track.
      lengths: ``[r]``, chips of each track.
    """

    tracks: openset.Outputs
    chips: openset.Outputs
    lengths: Int[np.ndarray, " r"]


class Group(NamedTuple):
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
        """Names its arrays for ``scores.npz``."""
        found = {} if self.recorded else self.fitted.arrays()  # the chips' models are not recorded
        for part, outputs in self.outputs.items():
            prefix = f"{part}_{self.recorded}"
            found |= evaluation.part_arrays(prefix, outputs, self.values[part])
        return found


class Seen(NamedTuple):
    """A network's outputs, and the scores that are wanted of them.

    Attributes:
      chosen: the scores.
      variables: of the network, for one device.
      training: outputs on the training part; None where no score is fitted to it.
      parts: name of each other part to the outputs on it.
    """

    chosen: evaluation.Chosen
    variables: PyTree
    training: PartOutputs | None
    parts: dict[str, PartOutputs]

    def tracks(self) -> Group:
        """Scores each track by the outputs on it."""
        return self._scored(lambda found: found.tracks, "", "")

    def chips(self, head: str, *, mean: str, recorded: str | None) -> dict[str, Group]:
        """Scores each chip, and each track by the mean over its chips.

        Args:
          head: prefix of the names of the chips' heads among the parameters.
          mean: name of the group of the means.
          recorded: of that group.
        """
        chips = self._scored(lambda found: found.chips, head, "chip_")
        outputs, values = {}, {}
        for part, found in self.parts.items():
            outputs[part] = openset.mean_outputs(found.chips, found.lengths)
            values[part] = _means(chips.values[part], found.lengths)
        return {mean: Group(chips.fitted, outputs, values, recorded), CHIPS: chips}

    def _scored(
        self, take: Callable[[PartOutputs], openset.Outputs], prefix: str, recorded: str
    ) -> Group:
        outputs = {part: take(found) for part, found in self.parts.items()}
        fitted = openset.fit_scores(
            self.chosen.scores,
            None if self.training is None else take(self.training),
            head(self.variables, prefix),
            validation=outputs.get("validation"),
            leave_out=self.chosen.leave_out,
        )
        values = {part: fitted.on(one) for part, one in outputs.items()}
        return Group(fitted, outputs, values, recorded)


@runtime_checkable  # the tests check annotations as they run
class ScoredTracks(Deciding, Protocol):
    """The task of a run on tracks whose outputs are scored."""

    def part_outputs(
        self, variables: PyTree, part: str, needs: Collection[str] = ()
    ) -> PartOutputs:
        """Computes the network's outputs on the tracks of a part and on their chips."""
        ...

    def groups(self, seen: Seen) -> dict[str, Group]:
        """Sorts an evaluation's outputs into groups, by name."""
        ...

    def decided(self, found: PartOutputs) -> openset.Outputs:
        """Picks the outputs on what a recogniser takes one by one."""
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
    figures, arrays = {}, {}
    for name, group in task.groups(Seen(chosen, variables, training, found)).items():
        test = group.outputs["test"]
        everything = np.ones(len(test.labels), bool)
        figures[name] = evaluation.measure(task, group.fitted, test, group.values, everything)
        if name == TRACKS and (off := group.outputs.get(BOX_OFF)):
            figures[evaluation.box_off(task)] = evaluation.measure(
                task, group.fitted, off, group.values, everything, part=BOX_OFF
            )
        if group.recorded is not None:
            arrays |= group.arrays()
    for part, one in found.items():
        arrays[f"{part}_id"] = evaluation.ids(task.parts[part])
        arrays[f"{part}_length"] = one.lengths
    measured = evaluation.summary(task, figures, chosen.scores)
    if made is not None:
        judge(made, task.decided(found["test"]), measured, arrays)
    return measured, arrays


def _means(
    values: dict[str, Shaped[np.ndarray, " m"]], lengths: Int[np.ndarray, " r"]
) -> dict[str, Shaped[np.ndarray, " r"]]:
    """Averages the scores of each track's chips."""
    return {name: openset.mean_over(score, lengths) for name, score in values.items()}
