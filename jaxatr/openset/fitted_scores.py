"""Fits scores to a network's outputs, and computes them."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Head, Score
from jaxatr.typing import Shaped


class Fitted(NamedTuple):
    """Scores that are ready to use.

    Attributes:
      scores: those that could be fitted, or need no fit.
      models: name of a score to its fitted model.
    """

    scores: tuple[Score, ...]
    models: dict[str, Any]

    def on(self, outputs: Outputs) -> dict[str, Shaped[np.ndarray, " n"]]:
        """Computes every score on n examples, by name."""
        return {score.name: score(self.models.get(score.name), outputs) for score in self.scores}

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
    trained: Mapping[str, Any] | None = None,
    leave_out: bool = False,
) -> Fitted:
    """Fits those of the scores that have a fit.

    Args:
      scores: to be computed.
      training: outputs on the training examples of the known classes, as at test time; for the
        scores that are fitted.
      head: the closed-set classifier's last layer, for ViM.
      trained: name of a score to the model that its own training left.
      leave_out: leave out, with a warning, a score whose fit refuses the outputs.

    Raises:
      ValueError: a score that has to be fitted and no outputs to fit it to; a score without the
        model of its own training; or the score's own fit refuses the outputs, named by the score.
    """
    ready, models = [], dict(trained or {})
    for score in scores:
        if score.fit is not None:
            if training is None or head is None:
                raise ValueError(
                    f"{score.name}: wanted the outputs on training examples to fit it to"
                )
            try:
                models[score.name] = score.fit(training, head)
            except ValueError as error:
                if not leave_out:
                    raise ValueError(f"{score.name}: {error}") from error
                warnings.warn(f"{score.name} is left out: {error}", stacklevel=2)
                continue
        elif score.training is not None and score.name not in models:
            raise ValueError(f"{score.name}: wanted the model that its own training left")
        ready.append(score)
    return Fitted(tuple(ready), models)
