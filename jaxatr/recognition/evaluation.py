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
from jaxatr.recognition.baselines import add_recorded, trained_scores
from jaxatr.recognition.choice import Made, made_for
from jaxatr.recognition.measures import accepted, judge
from jaxatr.recognition.session import head
from jaxatr.reporting import score_record
from jaxatr.tasks.open_set.deciders import decides
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.parts import BOX_OFF, EVALUATED, Part, box_off, ids, part_arrays
from jaxatr.training.task import silent
from jaxatr.typing import Bool, PyTree


class Chosen(NamedTuple):
    """The scores of an evaluation.

    Attributes:
      scores: scores computed from the run's network.
      trained: models of those scores that were trained separately, by name.
      networks: folders of the networks of further scores, by name.
      leave_out: skip scores that cannot be fitted, with a warning.
      ready: models of the score that decides and of its members, by name.
    """

    scores: tuple[openset.Score, ...]
    trained: dict[str, Any]
    networks: dict[str, Path]
    leave_out: bool
    ready: Mapping[str, Any] = {}

    @property
    def needs(self) -> frozenset[str]:
        """Inputs of all scores, other than logits."""
        return frozenset().union(*(score.all_needs for score in self.scores))

    @property
    def needs_of_fit(self) -> frozenset[str] | None:
        """Inputs of the scores to fit to training examples; None if there are none."""
        fitted = [s.all_needs for s in self.scores if s.fitted and s.name not in self.ready]
        return frozenset().union(*fitted) if fitted else None


def choose(
    task: OpenSet,
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
    ready = made.decision.models if made is not None and made.decision is not None else {}
    return Chosen(tuple(chosen), trained, networks, scores == "all", ready)


class Scored(NamedTuple):
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
    ) -> "Scored":
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
    default = openset.DEFAULT
    if task.config.open_set.negatives:  # scores for networks with a class of negatives
        default = [s.name for s in openset.SCORES.values() if "extra_logits" in s.needs]
    if scores not in (None, "all"):
        choose(task, scores, workdir, default)  # raises errors before anything is fitted
    others = other_data.read(task, other)
    parts = {name: task.parts[name] for name in EVALUATED if name in task.parts}
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
    for name, folder in chosen.networks.items():
        if not task.examples.own_test:
            reason = "its network was measured on the run's own test only"
        elif joined is not None:
            reason = "its network does not know enrolled classes"
        else:
            add_recorded(name, folder, measured, arrays)
            continue
        warnings.warn(f"{name} is left out: {reason}", stacklevel=2)
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


def decided(made: Made | None, classes: int) -> dict[str, float]:
    """Returns the calibrated threshold of the score that decides, if all classes share one.

    Args:
      made: the decision.
      classes: number of classes of the network.

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
    chosen: Chosen,
    outputs: Mapping[str, openset.Outputs],
    joined: enrolment_measures.Joined | None,
    say: Callable[[str], None],
) -> Scored:
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
        trained=_adapted(chosen, outputs.get("validation")),
        ready=chosen.ready,
        leave_out=chosen.leave_out,
        begins=lambda score: say(f"fitting {score.name}"),
    )
    if joined is None:
        return Scored.of(fitted, outputs)
    # Those that cannot take the enrolled classes stay as they are.
    classes = len(joined.further)
    return Scored.of(
        fitted, outputs, openset.enrol_scores(fitted, joined.outputs, classes), classes
    )


def groups_of(
    task: OpenSet,
    parts: Mapping[str, Part],
    scored: Scored,
    outputs: Mapping[str, openset.Outputs],
) -> dict[str, Any]:
    """Computes the metrics of each group of test examples.

    They are all of them, each range if there are several, those with boxes that are off, and the
    known ones together with images of other data.

    Args:
      task: the run's task.
      parts: the evaluated parts, by name.
      scored: their scores.
      outputs: their outputs.
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
    task: OpenSet, scored: Scored, outputs: Mapping[str, openset.Outputs], part: str
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
    parts: Mapping[str, Part], outputs: Mapping[str, openset.Outputs], scored: Scored
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


def needs_of(made: Made | None) -> frozenset[str]:
    """Returns the inputs of the score that decides, other than logits; empty if there is none."""
    return frozenset(made.decision.score.all_needs if made and made.decision else ())


def _adapted(chosen: Chosen, validation: openset.Outputs | None) -> dict[str, Any]:
    """Adapts separately trained models to the run's network."""
    models = dict(chosen.trained)
    for score in chosen.scores:
        if score.name in models and score.training and score.training.adapt:
            if validation is None:
                raise ValueError(f"{score.name}: adapting it needs validation examples")
            models[score.name] = score.training.adapt(models[score.name], validation)
    return models


def measure(
    task: OpenSet,
    test: openset.Outputs,
    scored: Scored,
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
