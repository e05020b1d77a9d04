"""The evaluation of tracks: by their outputs, by the means over their chips, and by chip."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.recognition import evaluation
from jaxatr.recognition.choice import made_for
from jaxatr.recognition.evaluated_scores import EvaluatedScores, choose
from jaxatr.recognition.evaluation import ScoreValues
from jaxatr.recognition.measures import judge
from jaxatr.recognition.session import head
from jaxatr.tasks.open_set.deciders import decides
from jaxatr.tasks.parts import BOX_OFF, EVALUATED, box_off, ids, part_arrays
from jaxatr.tasks.track.chips import TrackChips
from jaxatr.tasks.track.of_tracks import OfTracks
from jaxatr.tasks.track.outputs import PartOutputs
from jaxatr.typing import PyTree

TRACKS, MEAN, CHIPS = "all", "mean over chips", "single chips"


class TrackGroup(NamedTuple):
    """A group of an evaluation: tracks, means over chips, or single chips.

    Attributes:
      scored: the scores.
      outputs: network outputs by part.
      recorded: prefix of the arrays in ``scores.npz``; None if other arrays there imply them.
    """

    scored: ScoreValues
    outputs: dict[str, openset.Outputs]
    recorded: str | None

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays for ``scores.npz``, by name."""
        arrays = {} if self.recorded else dict(self.scored.models)  # not those of chips
        for part, outputs in self.outputs.items():
            prefix = f"{part}_{self.recorded}"
            arrays |= part_arrays(prefix, outputs, self.scored.values[part])
            named = self.scored.named.get(part, {}).items()
            arrays |= {f"{prefix}predicted_{name}": label for name, label in named}
        return arrays


class TrackOutputs(NamedTuple):
    """A network's outputs, and the scores to compute from them.

    Attributes:
      chosen: the scores.
      variables: variables of the network, on one device.
      training: outputs for the training part; None if no score is fitted to it.
      parts: outputs for each other part, by its name.
    """

    chosen: EvaluatedScores
    variables: PyTree
    training: PartOutputs | None
    parts: dict[str, PartOutputs]

    def tracks(self) -> TrackGroup:
        """Scores each track by its own outputs."""
        return self._scored(lambda found: found.tracks, "", "")

    def chips(self, head: str, *, mean: str, recorded: str | None) -> dict[str, TrackGroup]:
        """Scores each chip, and each track by the mean over its chips.

        Args:
          head: prefix of the parameter names of the chips' heads.
          mean: name of the group of means.
          recorded: :attr:`TrackGroup.recorded` of the group of means.
        """
        chips = self._scored(lambda found: found.chips, head, "chip_")
        outputs, values = {}, {}
        for part, found in self.parts.items():
            outputs[part] = openset.mean_outputs(found.chips, found.lengths)
            values[part] = {
                name: openset.mean_over(score, found.lengths)
                for name, score in chips.scored.values[part].items()
            }
        means = chips.scored._replace(values=values, named={})
        return {mean: TrackGroup(means, outputs, recorded), CHIPS: chips}

    def _scored(
        self, take: Callable[[PartOutputs], openset.Outputs], prefix: str, recorded: str
    ) -> TrackGroup:
        outputs = {part: take(found) for part, found in self.parts.items()}
        fitted = openset.fit_scores(
            self.chosen.scores,
            None if self.training is None else take(self.training),
            head(self.variables, prefix),
            validation=outputs.get("validation"),
            leave_out=self.chosen.leave_out,
        )
        return TrackGroup(ScoreValues.of(fitted, outputs), outputs, recorded)


def groups(task: OfTracks, seen: TrackOutputs) -> dict[str, TrackGroup]:
    """Returns the groups of a task: of tracks and, where chips are trained, means and chips."""
    if isinstance(task, TrackChips):
        return seen.chips("", mean=TRACKS, recorded="")
    of_chips = {}
    if task.config.track.chip_weight:
        of_chips = seen.chips("chip_", mean=MEAN, recorded=None)
    return {TRACKS: seen.tracks(), **of_chips}


def evaluate(
    task: OfTracks,
    variables: PyTree,
    scores: str | Collection[str] | None,
    workdir: Path | None = None,
    step: int | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluates a network of tracks (:meth:`jaxatr.tasks.track.TrackOpenSet.test`)."""
    if scores not in (None, "all"):
        choose(task, scores)  # raises errors before anything is fitted
    made = made_for(task, variables, workdir, step) if decides(task.config) else None
    # Tracks and single chips each need a fit of their own.
    chosen = choose(task, scores, made=made)._replace(ready={})
    needs = chosen.needs | evaluation.needs_of(made)
    found = {
        part: task.part_outputs(variables, part, needs) for part in EVALUATED if part in task.parts
    }
    training = None
    if chosen.needs_of_fit is not None:
        training = task.part_outputs(variables, "train", chosen.needs_of_fit)
    figures, arrays = {}, {}
    for name, group in groups(task, TrackOutputs(chosen, variables, training, found)).items():
        if name == TRACKS and not isinstance(task, TrackChips):
            classes = group.outputs["test"].logits.shape[1]
            scored = group.scored._replace(decided=evaluation.decided(made, classes))
            group = group._replace(scored=scored)
        figures[name] = evaluation.measure(task, group.outputs["test"], group.scored)
        if name == TRACKS and (off := group.outputs.get(BOX_OFF)):
            figures[box_off(task.config)] = evaluation.measure(
                task, off, group.scored, part=BOX_OFF
            )
        if group.recorded is not None:
            arrays |= group.arrays()
    for part, one in found.items():
        arrays[f"{part}_id"] = ids(task.parts[part])
        arrays[f"{part}_length"] = one.lengths
    measured = evaluation.summary(task, figures, chosen.scores)
    if made is not None:
        judge(made, task.decided(found["test"]), measured, arrays)
    return measured, arrays
