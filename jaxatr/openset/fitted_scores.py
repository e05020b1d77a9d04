"""Fits scores to a network's outputs, and computes them."""

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
      scores: those that could be fitted, or need no fit.
      models: name of a score to its fitted model; those of members too.
      refused: name of a score that was left out to the reason.
    """

    scores: tuple[Score, ...]
    models: dict[str, Any]
    refused: Mapping[str, str] = {}

    def answers(self, outputs: Outputs) -> dict[str, Answer]:
        """Computes every score and its class on n examples, by name, each once."""
        found: dict[str, Answer] = {}
        for score in self.scores:
            _answer(score, self.models, outputs, found)
        return {score.name: found[score.name] for score in self.scores}

    def on(self, outputs: Outputs) -> dict[str, Shaped[np.ndarray, " n"]]:
        """Computes every score on n examples, by name."""
        return {name: answer.score for name, answer in self.answers(outputs).items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """Lists the models' arrays for the record, as ``fitted_NAME_FIELD``."""
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
    """Fits those of the scores that have a fit, and calibrates those that are to be.

    Args:
      scores: to be computed.
      training: outputs on the training examples of the known classes, as at test time; for the
        scores that are fitted.
      head: the closed-set classifier's last layer, for ViM and others.
      validation: outputs on known examples that took no part in training, for the scores that are
        calibrated.
      trained: name of a score to the model that its own training left.
      leave_out: leave out, with a warning, a score whose fit refuses the outputs.
      begins: called with each score that is fitted or calibrated, before that.

    Raises:
      ValueError: a score that has to be fitted or calibrated and no outputs to do it with; a score
        without the model of its own training; or the score's own fit refuses the outputs, named by
        the score.
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
    """The examples of a fit, and the models that it has made."""

    training: Outputs | None
    head: Head | None
    validation: Outputs | None
    models: dict[str, Any]
    done: set[str]

    def check(self, score: Score) -> None:
        """Refuses a score for which something is missing that no other examples could bring."""
        if score.fit is not None and (self.training is None or self.head is None):
            raise ValueError(f"{score.name}: wanted the outputs on training examples to fit it to")
        if score.fit is None and score.training is not None and score.name not in self.models:
            raise ValueError(f"{score.name}: wanted the model that its own training left")
        for member in score.members:
            self.check(member)

    def add(self, score: Score) -> None:
        """Fits a score after its members, unless that is done."""
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
            model = score.fit(self.training, self.head)
        if score.calibrate is not None:
            if self.validation is None:
                raise ValueError("wanted the outputs on validation examples to calibrate it")
            model = score.calibrate(model, _with_members(score, self.models, self.validation, {}))
        if model is not None:
            self.models[score.name] = model


def _answer(
    score: Score, models: Mapping[str, Any], outputs: Outputs, found: dict[str, Answer]
) -> Answer:
    """Computes a score after its members; ``found`` has and gets what is computed."""
    if score.name not in found:
        full = _with_members(score, models, outputs, found)
        found[score.name] = score.answer(models.get(score.name), full)
    return found[score.name]


def _with_members(
    score: Score, models: Mapping[str, Any], outputs: Outputs, found: dict[str, Answer]
) -> Outputs:
    """Adds to outputs what a score's members answer to them."""
    more = dict(outputs.more)
    for member in score.members:
        answer = _answer(member, models, outputs, found)
        fields = {name: values for name, values in answer._asdict().items() if values is not None}
        more |= {f"{name}_{member.name}": values for name, values in fields.items()}
    return outputs._replace(more=more) if score.members else outputs
