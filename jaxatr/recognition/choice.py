"""The decision of a run: choosing, fitting, calibrating and saving the score that decides."""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import openset
from jaxatr.openset.detectors import consensus
from jaxatr.parallel import wait_for_all
from jaxatr.recognition import selection, store, trials
from jaxatr.recognition.session import head
from jaxatr.recognition.trials import MOST_COMPARED
from jaxatr.reporting.tables import guarantee_in_words
from jaxatr.tasks.open_set.deciders import AUTO, DEFAULT, FORMS, RULE, score_of
from jaxatr.tasks.open_set.needs import refusal
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.open_set.views import kept_as
from jaxatr.training.task import silent
from jaxatr.typing import Config, PyTree

_CHOICES = {AUTO: store.CHOICE, DEFAULT: store.DEFAULT}
"""Names that stand for a score, and the file that records for which."""


class RunDecision(NamedTuple):
    """The decision of a run, with its origin and what a user has to know about it.

    Attributes:
      decision: the decision; None if no score can decide.
      record: its origin, as JSON values for ``record.json`` and ``evaluation.json``.
      gamma: the given or recorded γ, or None.
      note: a notice for the user; empty if there is none.
      further: names of the enrolled classes that the decision includes.
    """

    decision: openset.Decision | None
    record: dict[str, Any]
    gamma: float | None = None
    note: str = ""
    further: tuple[str, ...] = ()

    @property
    def rule(self) -> openset.Decision:
        """The decision.

        Raises:
          ValueError: no score can decide.
        """
        if self.decision is None:
            raise ValueError(f"no score decides: {self.record['by']}")
        return self.decision


def made_for(
    task: OpenSet,
    variables: PyTree,
    workdir: Path | None = None,
    step: int | None = None,
    *,
    score: str | None = None,
    say: Callable[[str], None] = silent,
) -> RunDecision:
    """Reads the decision of a checkpoint, or fits and saves it.

    Args:
      task: the run's task.
      variables: variables of the checkpoint.
      workdir: the run's folder; without it, nothing is read or saved.
      step: step of the checkpoint.
      score: name of a score, ``"consensus"`` or ``"auto"``; by default the configured one.
      say: called with each step that takes time.
    """
    name = score or task.config.open_set.score
    if workdir is None or step is None:
        return fit(task, variables, name, say=say)
    if (found := read(workdir, step, task.config, score=name)) is not None:
        return found
    made = fit(task, variables, name, workdir, say=say)
    try:
        if made.decision is not None and name != RULE:
            kept = kept_as(made.decision.score.name, task.config)
            store.save(workdir, step, kept, made.decision, made.record)
        if name in _CHOICES:
            store.save_choice(workdir, step, made.record, kept_as(_CHOICES[name], task.config))
    except OSError as error:
        warnings.warn(f"the fit of score={name} could not be saved: {error}", stacklevel=2)
    wait_for_all(f"decision {name}")  # from here on, other processes may read the files
    return made


def read(
    workdir: Path, step: int, config: Config, *, score: str | None = None
) -> RunDecision | None:
    """Reads the decision of a checkpoint; None if it has to be fitted first.

    Args:
      workdir: the run's folder.
      step: step of the checkpoint.
      config: the run's configuration.
      score: name of a score, ``"consensus"`` or ``"auto"``; by default the configured one.

    Raises:
      ValueError: there is no such score, or a file is corrupt.
    """
    name = score or config.open_set.score
    record: dict[str, Any] = {"by": "name"}
    if name in _CHOICES:
        chosen = store.load_choice(workdir, step, kept_as(_CHOICES[name], config))
        if chosen is None:
            return None
        if chosen["decides"] is None:
            return RunDecision(None, chosen)
        name, record = chosen["decides"], chosen
    elif name == RULE:
        return RunDecision(openset.gamma_rule(config.open_set.gamma), _rule_record(config))
    one = score_of(name)
    kept = kept_as(one.name, config)
    found = store.load(workdir, step, kept, one)
    if found is None:
        return None
    record = {**store.provenance_of(workdir, step, kept), **record}
    return RunDecision(as_configured(found, config), record)


def fit(
    task: OpenSet,
    variables: PyTree,
    name: str,
    workdir: Path | None = None,
    *,
    say: Callable[[str], None] = silent,
) -> RunDecision:
    """Chooses, fits and calibrates the score that decides.

    Args:
      task: the run's task.
      variables: variables of a checkpoint.
      name: name of a score. ``"consensus"`` is the rule of
        :mod:`jaxatr.openset.detectors.consensus`, in the first form that the run can compute;
        a run that can compute none, because it has no maps, decides as ``"auto"``. ``"auto"``
        chooses the score that best separates known classes from held-out ones
        (:mod:`jaxatr.openset.trials`). For the comparison, scores are fitted to a random sample of
        at most :data:`MOST_COMPARED` training examples; the chosen score is then fitted to all of
        them. With fewer than three known classes, ``"auto"`` stands for CBC, and so do both without
        validation examples. A network without CBC then uses softmax, or has no decision if there
        are no validation examples.
      workdir: the run's folder, with any trials (:mod:`jaxatr.tasks.open_set.trials`). Without
        trials, classes are held out from this network's outputs to compare scores, or to weight
        the members of ``"consensus"``, which the record does not call an estimate.
      say: called with each step that takes time.

    Raises:
      ValueError: the run cannot compute or fit the named score.
    """
    if name == RULE:
        return RunDecision(
            openset.gamma_rule(task.config.open_set.gamma), _rule_record(task.config)
        )
    reason = ""
    if name == DEFAULT:
        one, reason = selection.default_form(task)
        if one is not None:
            try:
                return _fit_listed(task, variables, name, (one,), workdir, say)
            except ValueError as error:
                reason = f"{DEFAULT} cannot be fitted ({error})"
        reason += f": {AUTO} decides"
        warnings.warn(f"open_set.score: {reason}", stacklevel=4)
        name = AUTO
    listed = selection.candidates(task.given) if name == AUTO else (score_of(name),)
    for score in listed:
        if refused := refusal(score, task.given):
            raise ValueError(f"open_set.score: {score.name} {refused}")
    made = _fit_listed(task, variables, name, listed, workdir, say)
    by = f"{made.record['by']}; {reason}" if reason else made.record["by"]
    return made._replace(record=made.record | {"by": by})


def _fit_listed(
    task: OpenSet,
    variables: PyTree,
    name: str,
    listed: tuple[openset.Score, ...],
    workdir: Path | None,
    say: Callable[[str], None],
) -> RunDecision:
    """Fits the score that decides, one of those listed."""
    fields = task.config.open_set
    if "validation" not in task.parts:
        return _without_validation(task, variables, name, listed)
    last = head(variables)
    folders = trials.folders_of(task, workdir) if workdir is not None else []
    training = validation = None
    most = MOST_COMPARED if name == AUTO else None
    examples = sum(len(task.parts[part].labels) for part in ("train", "validation"))
    if not folders:
        say(f"computing outputs on {examples} examples (train, validation)")
        training, validation = _outputs(task, variables, listed, most=most)
    if folders or len(listed) > 1:
        say(f"comparing {len(listed)} scores" if len(listed) > 1 else "testing members in trials")
    compared = selection.compare(task, listed, folders, training, validation, last)
    score, why = selection.select(name, listed, compared, len(folders))
    sampled = most is not None and training is not None and len(training.labels) == most
    if training is None or validation is None or sampled:
        training = validation = None  # freed before the next ones
        say(f"computing outputs on {examples} examples (train, validation)")
        training, validation = _outputs(task, variables, [score])
    say(f"fitting {score.name}, and its threshold")
    models = openset.fit_scores([score], training, last, validation=validation).models
    if folders and score.name in FORMS:
        areas = {key: row.mean for key, row in compared.items() if row.areas}
        models[score.name] = consensus.weighted(score, models[score.name], areas)
    one, names = compared.get(score.name), _accuracies(score, models, validation)
    bare = openset.Decision(score, models, gallery=names.get("gallery", -1.0) >= names["head"])
    decision = openset.calibrate(
        bare,
        validation,
        tpr=fields.tpr,
        per_class=fields.per_class,
        # Classes that the network has seen stand out less than they should from unknown ones.
        sigmoid=openset.fit_sigmoid(one.standing, one.known) if folders and one else None,
        seen=_as_unseen(task, variables, bare, training, validation, say),
    )
    record = {"decides": score.name, **why, **facts(decision, validation)}
    record["validation_accuracy"] = names
    if folders and one and one.areas and score.name in FORMS:
        record["estimate"] = one.mean  # that of a score which was chosen as the best is too high
    record["candidates"] = {key: selection.row_of(value) for key, value in compared.items()}
    if score.name in FORMS:
        record |= selection.weights_of(score, models[score.name], validation, record["by"])
    return RunDecision(decision, record)


def _outputs(
    task: OpenSet, variables: PyTree, scores: Collection[openset.Score], *, most: int | None = None
) -> tuple[openset.Outputs, openset.Outputs]:
    """Computes the outputs that scores need, for training examples and for validation examples.

    Args:
      task: the run's task.
      variables: variables of a checkpoint.
      scores: the scores.
      most: largest number of training examples; by default all are used.
    """
    needs = frozenset().union(*(score.all_needs for score in scores))
    validation = task.decided_outputs(variables, "validation", needs)
    if not any(score.fitted for score in scores):
        return validation, validation  # the first is not used
    if most is None:
        return task.decided_outputs(variables, "train", needs), validation
    return task.sampled_outputs(variables, most, needs), validation


def _as_unseen(
    task: OpenSet,
    variables: PyTree,
    decision: openset.Decision,
    training: openset.Outputs,
    validation: openset.Outputs,
    say: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray] | None:
    """Scores the training examples as if not seen, if there are few validation examples.

    Returns:
      The scores and the classes; None with enough validation examples, or if the score cannot be
      fitted without some of the training examples.
    """
    if not openset.are_few(len(validation.labels), tpr=task.config.open_set.tpr):
        return None
    if not decision.score.fitted:
        training = task.decided_outputs(variables, "train", decision.score.all_needs)
    say(f"scoring {len(training.labels)} training examples as if not seen")
    try:
        return openset.with_training(decision, training, head(variables), validation)
    except ValueError as error:
        warnings.warn(
            f"open_set.tpr: the threshold of {decision.score.name} is fitted to the validation "
            f"examples alone, because it cannot be fitted without some training examples: {error}",
            stacklevel=4,
        )
        return None


def _without_validation(
    task: OpenSet, variables: PyTree, name: str, listed: tuple[openset.Score, ...]
) -> RunDecision:
    """Makes a decision with the threshold of its score that corresponds to γ, if there is one."""
    gamma, reason = task.config.open_set.gamma, "no validation examples"
    if name == AUTO:
        if listed[0].name != RULE:
            return RunDecision(None, {"decides": None, "by": reason})
        return RunDecision(openset.gamma_rule(gamma), {**_rule_record(task.config), "by": reason})
    (score,) = listed
    if score.calibrated:
        raise ValueError(f"open_set.score: {name} needs calibration, but there are {reason}")
    training = task.decided_outputs(variables, "train", score.all_needs) if score.fitted else None
    models = openset.fit_scores([score], training, head(variables)).models
    threshold = score.fixed_threshold(gamma) if score.fixed_threshold else None
    decision = openset.Decision(score, models, threshold=threshold)
    return RunDecision(decision, {"decides": score.name, "by": "name"})


def as_configured(decision: openset.Decision, config: Config) -> openset.Decision:
    """Applies the configured ``tpr`` and ``per_class``, which may have changed since the fit."""
    if decision.calibration is None:
        return decision
    fields = config.open_set
    calibration = decision.calibration._replace(tpr=fields.tpr, per_class=fields.per_class)
    return dataclasses.replace(decision, calibration=calibration)


def _rule_record(config: Config) -> dict[str, Any]:
    return {"decides": RULE, "by": "name", "gamma": config.open_set.gamma}


def _accuracies(
    score: openset.Score, models: dict[str, Any], validation: openset.Outputs
) -> dict[str, float]:
    """Returns the accuracy of the closed-set classifier, and of the score if it names the class."""
    accuracies = {"head": float(np.mean(validation.predicted == validation.labels))}
    if score.names_class:
        named = openset.Fitted((score,), models).answers(validation)[score.name].label
        accuracies["gallery"] = float(np.mean(named == validation.labels))
    return accuracies


def facts(decision: openset.Decision, validation: openset.Outputs) -> dict[str, Any]:
    """Returns properties of a calibrated decision, and warns if it cannot guarantee the rate.

    Args:
      decision: the decision.
      validation: outputs for the validation examples to which it was calibrated.
    """
    calibration = decision.calibration
    if calibration is not None:
        least = calibration.guarantee(validation.logits.shape[1])
        if least is None or least < calibration.tpr:
            warnings.warn(
                f"open_set.tpr: {len(validation.labels)} validation examples are too few to "
                f"guarantee that {100 * calibration.tpr:g} % of known examples are accepted: the "
                f"threshold is an estimate, with {guarantee_in_words(least)} (increase "
                "data.validation for more)",
                stacklevel=5,
            )
    return {
        "validation_examples": len(validation.labels),
        "class_from": "gallery" if decision.gallery else "head",
        "temperature": calibration.temperature if calibration else 1.0,
        "probability": decision.probability_is,
    }
