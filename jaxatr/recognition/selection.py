"""The selection of the score that decides: the candidates, and their comparison."""

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from jaxatr import openset
from jaxatr.openset.detectors import consensus
from jaxatr.recognition import trials
from jaxatr.tasks.open_set.deciders import AUTO, DEFAULT, FORMS, RULE, score_of
from jaxatr.tasks.open_set.needs import NEEDS, refusal
from jaxatr.tasks.open_set.task import OpenSet

_FEWER = "fewer than 3 known classes with validation examples"


def candidates(given: Collection[str]) -> tuple[openset.Score, ...]:
    """Returns the scores among which ``auto`` chooses, starting with CBC if the run has it.

    They are the scores that the run can compute, and whose inputs allow leaving classes out after
    the training.

    Args:
      given: names of the inputs of scores that the run provides.
    """
    able = [
        score
        for score in openset.SCORES.values()
        if score.training is None
        and score.name not in FORMS
        and not refusal(score, given)
        and not any(NEEDS[need].of_classes for need in score.all_needs)
    ]
    return tuple(sorted(able, key=lambda score: score.name != RULE))


def default_form(task: OpenSet) -> tuple[openset.Score | None, str]:
    """Returns the default rule in the form that a run can compute, or why it can compute none."""
    forms = [score_of(form) for form in FORMS]
    reasons = [refusal(one, task.given) for one in forms]
    if all(reasons):
        return None, f"{DEFAULT} {reasons[-1]}"
    if "validation" not in task.parts:
        return None, f"{DEFAULT} needs validation examples"
    return forms[reasons.index("")], ""


def compare(
    task: OpenSet,
    listed: tuple[openset.Score, ...],
    folders: list[Path],
    training: openset.Outputs | None,
    validation: openset.Outputs | None,
    last: openset.Head,
) -> dict[str, openset.Compared]:
    """Compares scores in trials, or else on classes left out of this network's outputs.

    The default rule is tested in trials only, with its members.

    Args:
      task: the run's task.
      listed: the scores to compare; the default rule stands alone.
      folders: folders of the trials; if there are none, classes are left out of the outputs.
      training: outputs for training examples; needed without trials.
      validation: outputs for validation examples; needed without trials.
      last: the closed-set classifier's last layer.
    """
    if listed[0].name in FORMS:
        if not folders:
            return {}
        members = consensus.names_of(listed[0])
        listed = (*listed, *(openset.SCORES[member] for member in members))
    if folders:
        needs = frozenset().union(*(score.all_needs for score in listed))
        left_out = trials.load(task, folders, needs)
    else:
        assert training is not None and validation is not None
        classes = tuple(task.record["split"]["known"])
        left_out = openset.leave_classes_out(training, validation, last, classes)
    trial_runs = tqdm(  # disable=None: shown on terminals only
        left_out,
        desc="comparing scores",
        unit="trial",
        total=len(folders) or None,
        leave=False,
        disable=None,
    )
    return openset.compare(listed, iter(trial_runs))


def select(
    name: str,
    listed: tuple[openset.Score, ...],
    compared: dict[str, openset.Compared],
    trained: int,
) -> tuple[openset.Score, dict[str, str]]:
    """Selects the score that decides.

    Args:
      name: the configured name.
      listed: the scores from which ``"auto"`` selects, or the named one.
      compared: their comparison, by name.
      trained: number of trials.

    Returns:
      The score, and how it was selected, for the record.
    """
    if name == DEFAULT:
        return listed[0], {
            "by": f"default, weights also by {trained} trainings" if trained else "default"
        }
    if name != AUTO:
        return listed[0], {"by": "name"}
    if (best := openset.best_of(compared)) is not None:
        (score,) = (one for one in listed if one.name == best)
        by = "known classes left out in turn, after the network"
        return score, {"by": f"known classes left out of {trained} trainings" if trained else by}
    score = next(one for one in listed if one.name in (RULE, "softmax"))
    warnings.warn(f"open_set.score: {score.name} decides, because there are {_FEWER}", stacklevel=4)
    return score, {"by": _FEWER}


def weights_of(
    score: openset.Score, model: consensus.Consensus, validation: openset.Outputs, by: str
) -> dict[str, Any]:
    """Returns the weights of the default rule for the record, and whether the network took part.

    Args:
      score: the rule.
      model: its fitted model.
      validation: outputs for validation examples.
      by: how the rule was selected.
    """
    names, classes = consensus.names_of(score), validation.logits.shape[1]
    weights = dict(zip(names, np.asarray(model.weights).tolist(), strict=True))
    if not openset.left_out(validation.labels, classes, most=consensus.GROUPS):
        by += f"; the network's scores are not weighted: {_FEWER}"
    return {"by": by, "weights": weights}


def row_of(one: openset.Compared) -> dict[str, Any]:
    """Converts the comparison of a score to JSON values."""
    if one.refused:
        return {"refused": one.refused}
    return {"auroc": one.mean, "by_class": one.areas} if one.areas else {}
