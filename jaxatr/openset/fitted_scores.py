"""Scores that are fitted to a network's outputs."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Head, Score
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
            _answer(score, self.models, outputs, answers)
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
      leave_out: leave out a score whose fit rejects the outputs, with a warning, instead of raising
        an error.
      begins: called with each score before it is fitted or calibrated.

    Raises:
      ValueError: the outputs to fit or calibrate a score are missing; the model of its own
        training is missing; or its fit rejects the outputs. The message begins with the score's
        name.
    """
    ready, refused = [], {}
    fitting = _Fitting(training, head, validation, dict(trained or {}), set())
    for score in scores:
        fitting.check(score)
        if begins is not None and (score.fitted or score.calibrated):
            begins(score)
        try:
            fitting.add(score)
        except ValueError as error:
            if not leave_out:
                raise
            refused[score.name] = str(error)
            warnings.warn(str(error).replace(":", " is left out:", 1), stacklevel=2)
            continue
        ready.append(score)
    return Fitted(tuple(ready), fitting.models, refused)


class _Fitting(NamedTuple):
    """The inputs of a fit, and the models fitted so far."""

    training: Outputs | None
    head: Head | None
    validation: Outputs | None
    models: dict[str, Any]
    done: set[str]

    def check(self, score: Score) -> None:
        """Raises an error if a score lacks an input that its fit requires."""
        if score.fit is not None and (self.training is None or self.head is None):
            raise ValueError(f"{score.name}: wanted the outputs on training examples to fit it to")
        if score.fit is None and score.training is not None and score.name not in self.models:
            raise ValueError(f"{score.name}: wanted the model of its own training")
        for member in score.members:
            self.check(member)

    def add(self, score: Score) -> None:
        """Fits a score's members and then the score, unless it is already fitted."""
        if score.name in self.done:
            return
        try:
            for member in score.members:
                self.add(member)
            self._fit(score)
        except ValueError as error:
            raise ValueError(f"{score.name}: {error}") from error
        self.done.add(score.name)

    def _fit(self, score: Score) -> None:
        model = self.models.get(score.name)
        if score.fit is not None and self.training is not None and self.head is not None:
            model = score.fit(_fitted_to(score, self.training), self.head)
        if score.calibrate is not None:
            if self.validation is None:
                raise ValueError("wanted the outputs on validation examples to calibrate it on")
            model = score.calibrate(model, _with_members(score, self.models, self.validation, {}))
        if model is not None:
            self.models[score.name] = model


def _fitted_to(score: Score, training: Outputs) -> Outputs:
    """Returns the examples that a score is fitted to; most scores take known classes only."""
    known = training.labels < training.logits.shape[1]
    further = "extra_logits" in score.needs or known.all()
    return training if further else training.select(known)


def _answer(
    score: Score, models: Mapping[str, Any], outputs: Outputs, answers: dict[str, Answer]
) -> Answer:
    """Computes a score after its members; ``answers`` caches the results."""
    if score.name not in answers:
        full = _with_members(score, models, outputs, answers)
        answers[score.name] = score.answer(models.get(score.name), full)
    return answers[score.name]


def _with_members(
    score: Score, models: Mapping[str, Any], outputs: Outputs, answers: dict[str, Answer]
) -> Outputs:
    """Adds the answers of a score's members to the outputs."""
    more = dict(outputs.more)
    for member in score.members:
        answer = _answer(member, models, outputs, answers)
        fields = {name: values for name, values in answer._asdict().items() if values is not None}
        more |= {f"{name}_{member.name}": values for name, values in fields.items()}
    return outputs._replace(more=more) if score.members else outputs
