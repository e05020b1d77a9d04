"""Scores that are fitted to a network's outputs."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset.head import Head
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Score
from jaxatr.typing import Shaped


class Fitted(NamedTuple):
    """Scores that are ready to use.

    Attributes:
      scores: the scores that could be fitted, or need no fit.
      models: fitted models by score name, including those of members.
      refused: reasons by name, for the scores that were left out.
    """

    scores: tuple[Score, ...]
    models: dict[str, Any]
    refused: Mapping[str, str] = {}

    def answers(self, outputs: Outputs) -> dict[str, Answer]:
        """Computes every score and its class on n examples, by name; shared members only once."""
        answers: dict[str, Answer] = {}
        for score in self.scores:
            answer_members_first(score, outputs, _by(self.models), answers)
        return {score.name: answers[score.name] for score in self.scores}

    def on(self, outputs: Outputs) -> dict[str, Shaped[np.ndarray, " n"]]:
        """Computes every score on n examples, by name."""
        return {name: answer.score for name, answer in self.answers(outputs).items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the models' arrays for the record, named ``fitted_NAME_FIELD``."""
        return {
            f"fitted_{score.name}_{field}": np.asarray(value)
            for score in self.scores
            if score.recorded and score.name in self.models
            for field, value in self.models[score.name]._asdict().items()
        }


def fit_scores(
    scores: Iterable[Score],
    training: Outputs | None = None,
    head: Head | None = None,
    *,
    validation: Outputs | None = None,
    trained: Mapping[str, Any] | None = None,
    ready: Mapping[str, Any] | None = None,
    weighted: Mapping[str, Any] | None = None,
    leave_out: bool = False,
    begins: Callable[[Score], None] | None = None,
) -> Fitted:
    """Fits and calibrates the scores that need it.

    Args:
      scores: the scores.
      training: outputs on the training examples of the known classes, computed in test mode; needed
        by scores that are fitted. Examples of a further class, with labels from the number of known
        classes on, are only for scores that need ``"extra_logits"``.
      head: the closed-set classifier's last layer, used by ViM and others.
      validation: outputs on known examples that took no part in training; needed by scores that
        are calibrated.
      trained: models of the scores with a training of their own, by name.
      ready: models of scores that were fitted and calibrated before, by name; they are kept.
      weighted: models by name whose weights are kept, instead of being found again.
      leave_out: leave out a score whose fit rejects the outputs, with a warning, instead of raising
        an error.
      begins: called with each score before it is fitted or calibrated.

    Raises:
      ValueError: the outputs to fit or calibrate a score are missing; the model of its own
        training is missing; or its fit rejects the outputs. The message begins with the score's
        name.
    """
    able, refused, done, kept = [], {}, set(ready or ()), weighted or {}
    models = {**(trained or {}), **(ready or {})}

    def add(score: Score) -> None:
        if score.fit is not None and training is not None:
            models[score.name] = fit_one(score, training, head)
            if score.weigh is not None and score.name in kept:
                models[score.name] = models[score.name]._replace(weights=kept[score.name].weights)
            elif score.weigh is not None and validation is not None:
                models[score.name] = weigh_one(score, models, training, validation, head)
        if score.calibrate is not None:
            models[score.name] = calibrate_one(score, models, validation)

    for score in scores:
        if score.name not in done:
            _check(score, training is not None and head is not None, models)
        if begins is not None and score.name not in done and (score.fitted or score.calibrated):
            begins(score)
        try:
            members_first(score, add, done)
        except ValueError as error:
            if not leave_out:
                raise
            refused[score.name] = str(error)
            warnings.warn(str(error).replace(":", " is left out:", 1), stacklevel=2)
            continue
        able.append(score)
    return Fitted(tuple(able), models, refused)


def _check(score: Score, fits: bool, models: Mapping[str, Any]) -> None:
    """Raises an error if a score lacks an input that its fit requires."""
    if score.fit is not None and not fits:
        raise ValueError(f"{score.name}: wanted the outputs on training examples to fit it to")
    if score.fit is None and score.training is not None and score.name not in models:
        raise ValueError(f"{score.name}: wanted the model of its own training")
    for member in score.members:
        _check(member, fits, models)


def members_first(score: Score, act: Callable[[Score], None], done: set[str]) -> None:
    """Calls a function with a score's members and then with the score, unless it is done.

    Raises:
      ValueError: from the function; the message begins with the score's name.
    """
    if score.name in done:
        return
    try:
        for member in score.members:
            members_first(member, act, done)
        act(score)
    except ValueError as error:
        raise ValueError(f"{score.name}: {error}") from error
    done.add(score.name)


def fit_one(score: Score, training: Outputs, head: Head | None) -> Any:
    """Fits a score; most scores take examples of known classes only."""
    assert score.fit is not None
    return score.fit(training if "extra_logits" in score.needs else _known(training), head)


def weigh_one(
    score: Score,
    models: Mapping[str, Any],
    training: Outputs,
    validation: Outputs,
    head: Head | None,
) -> Any:
    """Sets the weights of a score that is fitted."""
    assert score.weigh is not None
    return score.weigh(models[score.name], _known(training), validation, head)


def _known(outputs: Outputs) -> Outputs:
    """Returns the outputs without examples of a further class."""
    known = outputs.labels < outputs.logits.shape[1]
    return outputs if known.all() else outputs.select(known)


def calibrate_one(score: Score, models: Mapping[str, Any], validation: Outputs | None) -> Any:
    """Calibrates a score, whose members are fitted and calibrated."""
    assert score.calibrate is not None
    if validation is None:
        raise ValueError("wanted the outputs on validation examples to calibrate it on")
    full = with_members(score, validation, _by(models), {})
    return score.calibrate(models.get(score.name), full)


def answer_members_first(
    score: Score,
    outputs: Outputs,
    compute: Callable[[Score, Outputs], Answer],
    answers: dict[str, Answer],
) -> Answer:
    """Computes a score after its members; ``answers`` has the results so far."""
    if score.name not in answers:
        full = with_members(score, outputs, compute, answers)
        answers[score.name] = compute(score, full)
    return answers[score.name]


def with_members(
    score: Score,
    outputs: Outputs,
    compute: Callable[[Score, Outputs], Answer],
    answers: dict[str, Answer],
) -> Outputs:
    """Adds the answers of a score's members to the outputs."""
    more = dict(outputs.more)
    for member in score.members:
        answer = answer_members_first(member, outputs, compute, answers)
        fields = {name: values for name, values in answer._asdict().items() if values is not None}
        more |= {f"{name}_{member.name}": values for name, values in fields.items()}
    return outputs._replace(more=more) if score.members else outputs


def _by(models: Mapping[str, Any]) -> Callable[[Score, Outputs], Answer]:
    return lambda score, outputs: score.answer(models.get(score.name), outputs)
