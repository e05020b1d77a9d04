"""The evaluation of an open-set recogniser: its scores, and the metrics computed from them."""

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.recognition import enrolment_file, enrolment_measures, other_data
from jaxatr.recognition.baselines import add_recorded
from jaxatr.recognition.choice import RunDecision, made_for
from jaxatr.recognition.evaluated_scores import EvaluatedScores, choose
from jaxatr.recognition.measures import accepted, judge
from jaxatr.recognition.session import head
from jaxatr.reporting import score_record
from jaxatr.tasks.open_set.deciders import decides
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import BOX_OFF, EVALUATED, Part, box_off, ids, part_arrays
from jaxatr.training.task import silent
from jaxatr.typing import Bool, PyTree


class ScoreValues(NamedTuple):
    """Scores of several parts of the data.

    Attributes:
      scores: the scores.
      values: values ``[n]`` of each score, by part and score.
      named: classes ``[n]`` that scores name, by part and score, for those that name one.
      models: arrays of the fitted scores, for ``scores.npz``.
      decided: threshold of the score that decides, by its name, if all classes share one.
    """

    scores: tuple[openset.Score, ...]
    values: Mapping[str, Mapping[str, np.ndarray]]
    named: Mapping[str, Mapping[str, np.ndarray]]
    models: Mapping[str, np.ndarray] = {}
    decided: Mapping[str, float] = {}

    @classmethod
    def of(
        cls,
        fitted: openset.Fitted,
        outputs: Mapping[str, openset.Outputs],
        widened: openset.Fitted | None = None,
        classes: int = 0,
    ) -> "ScoreValues":
        """Computes fitted scores of the outputs of each part.

        Args:
          fitted: the scores.
          outputs: outputs by part.
          widened: those of the scores that take enrolled classes, fitted with them.
          classes: number of enrolled classes.
        """
        every = [(fitted, 0), *([(widened, classes)] if widened else [])]
        answers: dict[str, dict[str, openset.Answer]] = {part: {} for part in outputs}
        naming: set[str] = set()
        for scores, more in every:
            for part, out in outputs.items():
                answers[part] |= scores.answers(out.widened(more))
            naming |= {score.name for score in scores.scores if score.names_class or more}
        values = {
            part: {name: one.score for name, one in found.items()}
            for part, found in answers.items()
        }
        named = {
            part: {name: one.label for name, one in found.items() if name in naming}
            for part, found in answers.items()
        }
        models = {name: array for one, _ in every for name, array in one.arrays().items()}
        return cls(fitted.scores, values, named, models)


def evaluate(
    task: OpenSet,
    variables: PyTree,
    scores: str | Collection[str] | None,
    workdir: Path | None,
    step: int | None = None,
    other: str | None = None,
    progress: bool = False,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluates a network of single images (:meth:`jaxatr.tasks.open_set.OpenSet.test`).

    The network's outputs are computed once for each part; scores, measures, the decision's measures
    and the recorded arrays follow from them.
    """
    say = partial(print, file=sys.stderr, flush=True) if progress else silent
    default = _default(task)
    if scores not in (None, "all"):
        choose(task, scores, workdir, default)  # raises errors before anything is fitted
    others = other_data.read(task, other)
    variables = task.with_boxes(variables, workdir, step, say)
    parts = {name: task.decided_part(name) for name in EVALUATED if name in task.parts}
    parts |= {other_data.PART + name: one.part for name, one in others.items()}
    made, joined = None, None
    enrolment = enrolment_file.read(workdir) if workdir is not None else None
    if decides(task.config):
        say("loading the score that decides, or fitting it if necessary")
        deciding = None if enrolment is None else enrolment.score
        made = made_for(task, variables, workdir, step, score=deciding)
    chosen = choose(task, scores, workdir, default, made)
    needs = chosen.needs | needs_of(made)
    if made is not None and made.decision is not None and enrolment is not None:
        joined = enrolment_measures.join(task, variables, workdir, step, made, enrolment, needs)
        made, parts = joined.made, joined.parts_of(parts, task)
        chosen = chosen._replace(ready={})  # of the classes of the training only

    outputs = {}
    for name, part in parts.items():
        say(f"computing outputs on {len(part.indices)} examples ({name})")
        outputs[name] = task.outputs_of(variables, part, needs)
    scored = _scored(task, variables, chosen, outputs, joined, say)
    scored = scored._replace(decided=decided(made, outputs["test"].logits.shape[1]))
    say("scoring and measuring")
    measured = summary(task, groups_of(task, parts, scored, outputs), scored.scores)
    if others:
        measured["outside"] = {name: one.record for name, one in others.items()}
    arrays = arrays_of(parts, outputs, scored)
    _add_networks(task, chosen.networks, measured, arrays, enrolled=joined is not None)
    test = outputs["test"]
    if joined is not None:
        measured |= joined.figures(test)
    elif made is not None and made.decision is not None:
        measured |= enrolment_measures.of_trained(task.record, made.decision, test)
    if made is not None:
        judge(made, test, measured, arrays)
        for name in others:
            measured["outside"][name] |= accepted(made, outputs[other_data.PART + name])
    return measured, arrays


def _default(task: OpenSet) -> Collection[str]:
    """Names the default scores of a network, which may have a class of negatives."""
    if not task.config.open_set.negatives:
        return openset.DEFAULT
    return [s.name for s in openset.SCORES.values() if "extra_logits" in s.needs]


def _add_networks(
    task: OpenSet,
    networks: Mapping[str, Path],
    measured: dict[str, Any],
    arrays: dict[str, np.ndarray],
    *,
    enrolled: bool,
) -> None:
    """Adds what was recorded of scores with networks of their own, or warns why it cannot."""
    for name, folder in networks.items():
        if not task.examples.own_test:
            reason = "its network was measured on the run's own test only"
        elif enrolled:
            reason = "its network does not know enrolled classes"
        else:
            add_recorded(name, folder, measured, arrays)
            continue
        warnings.warn(f"{name} is left out: {reason}", stacklevel=3)


def decided(made: RunDecision | None, classes: int) -> dict[str, float]:
    """Returns the calibrated threshold of the score that decides, if all classes share one.

    Returns:
      The threshold by the name of the score; empty if there is none.
    """
    if made is None or made.decision is None or made.decision.calibration is None:
        return {}
    shared = set(made.decision.thresholds(classes).tolist())
    return {made.decision.score.name: shared.pop()} if len(shared) == 1 else {}


def _scored(
    task: OpenSet,
    variables: PyTree,
    chosen: EvaluatedScores,
    outputs: Mapping[str, openset.Outputs],
    joined: enrolment_measures.Joined | None,
    say: Callable[[str], None],
) -> ScoreValues:
    """Fits the chosen scores, and computes them on all parts."""
    training = None
    if chosen.needs_of_fit is not None:
        say(f"computing outputs on {len(task.parts['train'].indices)} examples (train)")
        training = task.outputs(variables, "train", chosen.needs_of_fit)
    fitted = openset.fit_scores(
        chosen.scores,
        training,
        head(variables).select(slice(len(task.record["split"]["known"]))),  # without negatives
        validation=outputs.get("validation"),
        trained=chosen.adapted(outputs.get("validation")),
        ready=chosen.ready,
        leave_out=chosen.leave_out,
        begins=lambda score: say(f"fitting {score.name}"),
    )
    if joined is None:
        return ScoreValues.of(fitted, outputs)
    # Those that cannot take the enrolled classes stay as they are.
    classes = len(joined.further)
    return ScoreValues.of(
        fitted, outputs, openset.enrol_scores(fitted, joined.outputs, classes), classes
    )


def groups_of(
    task: OpenSet,
    parts: Mapping[str, Part],
    scored: ScoreValues,
    outputs: Mapping[str, openset.Outputs],
) -> dict[str, Any]:
    """Computes the metrics of each group of test examples.

    They are all of them, each range if there are several, those with boxes that are off, and the
    known ones together with images of other data.
    """
    test, ranges = outputs["test"], parts["test"].column("range_m")
    groups = {"all": measure(task, test, scored)}
    if ranges is not None and len(np.unique(ranges)) > 1:
        for value in np.unique(ranges):
            groups[f"{value} m"] = measure(task, test, scored, rows=ranges == value)
    if BOX_OFF in outputs:
        groups[box_off(task.config)] = measure(task, outputs[BOX_OFF], scored, part=BOX_OFF)
    for part in outputs:
        if part.startswith(other_data.PART):
            name = part.removeprefix(other_data.PART)
            groups[name] = _against_known(task, scored, outputs, part)
    return groups


def _against_known(
    task: OpenSet, scored: ScoreValues, outputs: Mapping[str, openset.Outputs], part: str
) -> dict[str, Any]:
    """Computes the metrics of the known test examples together with a part of unknown examples."""
    known = outputs["test"].labels != openset.UNKNOWN

    def both(by_part: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
        test = by_part["test"]
        joined = {n: np.concatenate([test[n][known], more]) for n, more in by_part[part].items()}
        return {**by_part, part: joined}

    together = scored._replace(values=both(scored.values), named=both(scored.named))
    joined = other_data.against(outputs["test"].select(known), outputs[part])
    return measure(task, joined, together, part=part)


def arrays_of(
    parts: Mapping[str, Part], outputs: Mapping[str, openset.Outputs], scored: ScoreValues
) -> dict[str, np.ndarray]:
    """Returns the arrays of ``scores.npz``, by name."""
    arrays = dict(scored.models)
    for part, out in outputs.items():
        arrays |= part_arrays(f"{part}_", out, scored.values[part])
        arrays |= {f"{part}_predicted_{name}": one for name, one in scored.named[part].items()}
        arrays[f"{part}_id"] = ids(parts[part])
        if (seen := parts[part].column("range_m")) is not None:
            arrays[f"{part}_range_m"] = seen
    return arrays


def needs_of(made: RunDecision | None) -> frozenset[str]:
    """Returns the inputs of the score that decides, other than logits; empty if there is none."""
    return frozenset(made.decision.score.all_needs if made and made.decision else ())


def measure(
    task: OpenSet,
    test: openset.Outputs,
    scored: ScoreValues,
    *,
    part: str = "test",
    rows: Bool[np.ndarray, " n"] | None = None,
) -> dict[str, Any]:
    """Computes the metrics of a group of test examples.

    Args:
      task: the run's task.
      test: outputs for all examples of the part.
      scored: the scores of this part and of the validation examples.
      part: name of the part.
      rows: the group's examples; by default all.
    """
    fields = task.config.open_set
    chosen = np.ones(len(test.labels), bool) if rows is None else rows
    return openset.evaluate(
        test.labels[chosen],
        test.predicted[chosen],
        {name: score[chosen] for name, score in scored.values[part].items()},
        scored.values.get("validation"),
        fixed=openset.fixed_thresholds(scored.scores, fields.gamma),
        decided=scored.decided,
        named={name: labels[chosen] for name, labels in scored.named.get(part, {}).items()},
        tpr=fields.tpr,
    )


def summary(
    task: OpenSet, groups: dict[str, Any], scores: Iterable[openset.Score]
) -> dict[str, Any]:
    """Builds the content of ``evaluation.json`` from the metrics of each group of examples."""
    fields, split = task.config.open_set, task.record["split"]
    further = score_record.further_scores(scores)
    return {
        "task": "open_set",
        "dataset": task.record["dataset"],
        "split": split,
        "known": list(split["known"]),
        "unknown": list(split["unknown"]),
        "gamma": fields.gamma,
        "tpr": fields.tpr,
        "fitted_gamma": groups["all"].pop("fitted_gamma", None),
        **({"further_scores": further} if further else {}),
        "groups": groups,
    }
