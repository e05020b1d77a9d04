"""The evaluation of an open-set recogniser: its scores, and the metrics computed from them."""

import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.reporting import score_record
from jaxatr.tasks.open_set import enrolled, measured_enrolment, outside
from jaxatr.tasks.open_set.compared import add_recorded, trained_scores
from jaxatr.tasks.open_set.deciding import Made, decides, made_for
from jaxatr.tasks.open_set.judged import accepted, judge
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.scored import Divided, Enrollable, Scored, head
from jaxatr.tasks.parts import BOX_OFF, Part
from jaxatr.typing import PyTree

PARTS = ("validation", "test", BOX_OFF)


class Chosen(NamedTuple):
    """The scores of an evaluation.

    Attributes:
      scores: scores computed from the run's network.
      trained: models of those scores that were trained separately, by name.
      networks: folders of the networks of further scores, by name.
      leave_out: skip scores that cannot be fitted, with a warning.
    """

    scores: tuple[openset.Score, ...]
    trained: dict[str, Any]
    networks: dict[str, Path]
    leave_out: bool

    @property
    def needs(self) -> frozenset[str]:
        """Inputs of all scores, other than logits."""
        return frozenset().union(*(score.all_needs for score in self.scores))

    @property
    def needs_of_fit(self) -> frozenset[str] | None:
        """Inputs of the scores that are fitted to training examples; None if there are none."""
        fitted = [score.all_needs for score in self.scores if score.fitted]
        return frozenset().union(*fitted) if fitted else None


def choose(
    task: Scored,
    scores: str | Collection[str] | None,
    workdir: Path | None = None,
    default: Collection[str] = openset.DEFAULT,
    made: Made | None = None,
) -> Chosen:
    """Chooses the scores of an evaluation.

    Args:
      task: the run's task.
      scores: names of scores, ``"all"``, or None for the default. In the last two cases, scores
        that the task cannot compute are skipped (``"all"`` warns of each), and trained baselines
        are added.
      workdir: the run's folder, to find trained baselines.
      default: names of the default scores.
      made: the decision of the run; its score is added unless scores are named.

    Raises:
      ValueError: a named score does not exist, or cannot be computed; the message says why.
    """
    listed = openset.choose_scores(default if scores is None else scores)
    considered = {**openset.SCORES, **{score.name: score for score in listed}}
    found = {} if workdir is None else trained_scores(workdir, considered.values())
    if scores in (None, "all"):
        listed += tuple(considered[name] for name in found if considered[name] not in listed)
        if made is not None and made.decision is not None and made.decision.score not in listed:
            listed += (made.decision.score,)
    chosen, trained, networks = [], {}, {}
    for score in listed:
        reason = refusal(score, task.given)
        if score.training and workdir is not None and (score.fit is None or reason):
            left = found.get(score.name)
            if left is None:
                own = score.name in openset.SCORES
                baseline = score.training.baseline if own else f"MODULE:{score.name.upper()}"
                raise ValueError(
                    f"scores: {score.name} has not been trained in {workdir}: "
                    f"jaxatr train --workdir={workdir} --baselines={baseline}"
                )
            if score.training.model is None:
                networks[score.name] = left
                continue
            trained[score.name] = left
        if reason:
            if scores not in (None, "all"):
                raise ValueError(f"scores: {score.name} {reason}")
            if scores == "all":
                warnings.warn(f"{score.name} is left out: it {reason}", stacklevel=3)
            continue
        chosen.append(score)
    return Chosen(tuple(chosen), trained, networks, leave_out=scores == "all")


def evaluate(
    task: Enrollable,
    variables: PyTree,
    scores: str | Collection[str] | None,
    workdir: Path | None,
    step: int | None = None,
    other: str | None = None,
    progress: bool = False,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Evaluates a network of single images (:meth:`jaxatr.tasks.open_set.OpenSet.test`)."""
    default = openset.DEFAULT
    if task.config.open_set.negatives:  # scores for networks with a class of negatives
        default = [s.name for s in openset.SCORES.values() if "extra_logits" in s.needs]
    if scores not in (None, "all"):
        choose(task, scores, workdir, default)  # raises errors before anything is fitted
    others = outside.read(task, other)
    task.parts |= {outside.PART + name: one.part for name, one in others.items()}
    enrolment = enrolled.read(workdir) if workdir is not None else None
    deciding = None if enrolment is None else enrolment.score

    def say(text: str) -> None:
        if progress:
            print(text, file=sys.stderr, flush=True)

    made = None
    if decides(task.config):
        say("loading the score that decides, or fitting it if necessary")
        made = made_for(task, variables, workdir, step, score=deciding)
    chosen = choose(task, scores, workdir, default, made)
    needs = chosen.needs | needs_of(made)
    joined = None
    if made is not None and made.decision is not None and enrolment is not None:
        joined = measured_enrolment.join(task, variables, workdir, step, made, enrolment, needs)
        made = joined.made
    parts = (*PARTS, *(outside.PART + name for name in others))
    outputs = {}
    for part in filter(task.parts.__contains__, parts):
        say(f"computing outputs on {len(task.parts[part].indices)} examples ({part})")
        outputs[part] = task.outputs(variables, part, needs)
    training = None
    if chosen.needs_of_fit is not None:
        say(f"computing outputs on {len(task.parts['train'].indices)} examples (train)")
        training = task.outputs(variables, "train", chosen.needs_of_fit)
    fitted = openset.fit_scores(
        chosen.scores,
        training,
        head(variables).select(slice(len(task.record["split"]["known"]))),  # without negatives
        validation=outputs.get("validation"),
        trained=_adapted(chosen, outputs.get("validation")),
        leave_out=chosen.leave_out,
        begins=lambda score: say(f"fitting {score.name}"),
    )
    say("scoring and measuring")
    answers = {part: fitted.answers(out) for part, out in outputs.items()}
    arrays = fitted.arrays()
    naming = [score.name for score in fitted.scores if score.names_class]
    if joined is not None:  # the scores that cannot take the enrolled classes stay as they are
        further = openset.enrol_scores(fitted, joined.outputs, len(joined.further))
        for part, out in outputs.items():
            answers[part] |= further.answers(out.widened(len(joined.further)))
        arrays |= further.arrays()
        naming += [score.name for score in further.scores if not score.names_class]
    values = {part: _values(one) for part, one in answers.items()}
    named = {part: {name: one[name].label for name in naming} for part, one in answers.items()}
    test = outputs["test"]
    groups = test_groups(task, fitted, test, values, named["test"])
    if BOX_OFF in outputs:
        everything = np.ones(len(test.labels), bool)
        off = outputs[BOX_OFF]
        groups[box_off(task)] = measure(
            task, fitted, off, values, everything, named[BOX_OFF], part=BOX_OFF
        )
    for name in others:
        groups[name] = _against_known(task, fitted, outputs, values, named, outside.PART + name)
    measured = summary(task, groups, fitted.scores)
    if others:
        measured["outside"] = {name: one.record for name, one in others.items()}
    for part, out in outputs.items():
        arrays |= part_arrays(f"{part}_", out, values[part])
        arrays |= {f"{part}_predicted_{name}": label for name, label in named[part].items()}
        arrays[f"{part}_id"] = ids(task.parts[part])
        if (seen := task.parts[part].column("range_m")) is not None:
            arrays[f"{part}_range_m"] = seen
    for name, folder in chosen.networks.items():
        if joined is None:
            add_recorded(name, folder, measured, arrays)
        else:
            warnings.warn(
                f"{name} is left out: its network does not know enrolled classes", stacklevel=2
            )
    if joined is not None:
        measured |= joined.figures(test)
    elif made is not None and made.decision is not None:
        measured |= measured_enrolment.of_trained(task.record, made.decision, test)
    if made is not None:
        judge(made, test, measured, arrays)
        for name in others:
            measured["outside"][name] |= accepted(made, outputs[outside.PART + name])
    return measured, arrays


def test_groups(
    task: Scored,
    fitted: openset.Fitted,
    test: openset.Outputs,
    values: Mapping[str, Mapping[str, np.ndarray]],
    named: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """Computes the metrics of all test examples and, if there are several, of each range.

    Args:
      task: the run's task.
      fitted: the scores.
      test: outputs for all test examples.
      values: values ``[n]`` of each score, by part and score.
      named: classes ``[n]`` that scores name for the test examples, by score.
    """
    ranges = task.parts["test"].column("range_m")
    everything = np.ones(len(test.labels), bool)
    groups = {"all": measure(task, fitted, test, values, everything, named)}
    if ranges is not None and len(np.unique(ranges)) > 1:
        for value in np.unique(ranges):
            rows = ranges == value
            groups[f"{value} m"] = measure(task, fitted, test, values, rows, named)
    return groups


def _against_known(
    task: Scored,
    fitted: openset.Fitted,
    outputs: Mapping[str, openset.Outputs],
    values: Mapping[str, Mapping[str, np.ndarray]],
    named: Mapping[str, Mapping[str, np.ndarray]],
    part: str,
) -> dict[str, Any]:
    """Computes the metrics of the known test examples together with a part of unknown examples.

    Args:
      task: the run's task.
      fitted: the scores.
      outputs: outputs by part.
      values: values ``[n]`` of each score, by part and score.
      named: classes ``[n]`` that scores name, by part and score.
      part: name of the part of unknown examples.
    """
    known = outputs["test"].labels != openset.UNKNOWN
    joined = outside.against(outputs["test"].select(known), outputs[part])

    def both(by_part: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        test = by_part["test"]
        return {n: np.concatenate([test[n][known], more]) for n, more in by_part[part].items()}

    everything = np.ones(len(joined.labels), bool)
    scored = {**values, part: both(values)}
    return measure(task, fitted, joined, scored, everything, both(named), part=part)


def needs_of(made: Made | None) -> frozenset[str]:
    """Returns the inputs of the score that decides, other than logits; empty if there is none."""
    return frozenset(made.decision.score.all_needs if made and made.decision else ())


def _values(answers: Mapping[str, openset.Answer]) -> dict[str, np.ndarray]:
    return {name: answer.score for name, answer in answers.items()}


def _adapted(chosen: Chosen, validation: openset.Outputs | None) -> dict[str, Any]:
    """Adapts separately trained models to the run's network."""
    models = dict(chosen.trained)
    for score in chosen.scores:
        if score.name in models and score.training and score.training.adapt:
            if validation is None:
                raise ValueError(f"{score.name}: adapting it needs validation examples")
            models[score.name] = score.training.adapt(models[score.name], validation)
    return models


def box_off(task: Divided) -> str:
    """Returns the name of the group of test examples with perturbed boxes."""
    return f"boxes off by {100 * task.config.data.box_error:g} %"


def measure(
    task: Scored,
    fitted: openset.Fitted,
    test: openset.Outputs,
    values: Mapping[str, Mapping[str, np.ndarray]],
    rows: np.ndarray,
    named: Mapping[str, np.ndarray] | None = None,
    *,
    part: str = "test",
) -> dict[str, Any]:
    """Computes the metrics of a group of test examples.

    Args:
      task: the run's task.
      fitted: the scores.
      test: outputs for all test examples.
      values: values ``[n]`` of each score, by part and score.
      rows: ``[n]`` bool, the group's examples.
      named: classes ``[n]`` that scores name for all test examples, by score.
      part: name of the part of the test examples.
    """
    fields = task.config.open_set
    return openset.evaluate(
        test.labels[rows],
        test.predicted[rows],
        {name: score[rows] for name, score in values[part].items()},
        values.get("validation"),
        fixed=openset.fixed_thresholds(fitted.scores, fields.gamma),
        named={name: labels[rows] for name, labels in (named or {}).items()},
        tpr=fields.tpr,
    )


def summary(
    task: Scored, groups: dict[str, Any], scores: Iterable[openset.Score]
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


def ids(part: Part) -> np.ndarray:
    """Returns the ids of a part's examples, ``[n]``."""
    return part.split.columns["id"][part.indices]


def part_arrays(
    prefix: str, outputs: openset.Outputs, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the outputs and scores of a part, by their names in ``scores.npz``."""
    fields = {name: getattr(outputs, name) for name in ("logits", "open_logits", "labels")}
    fields |= {f"score_{name}": score for name, score in values.items()}
    return {f"{prefix}{name}": array for name, array in fields.items()}
