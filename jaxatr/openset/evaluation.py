"""From a network's outputs on known and unknown examples to the figures of the paper's tables."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from jaxatr import metrics
from jaxatr.openset.rule import calibrate_gamma
from jaxatr.openset.scores import cbc_score, max_logit_score, softmax_score
from jaxatr.typing import Bool, Float, Int

UNKNOWN = -1
"""The label of an example whose class is not among the known ones, and of a rejection."""

MAX_LOGIT_THRESHOLD = 3.0
"""The logit at which the paper's own code rejects by maximum logit (table 2)."""


class Outputs(NamedTuple):
    """A network's outputs on n examples.

    Attributes:
      logits: ``[n, k]``, of the closed-set classifier.
      open_logits: ``[n, k]``, of the binary classifiers.
      labels: ``[n]``, known class, or :data:`UNKNOWN`.
    """

    logits: Float[np.ndarray, "n k"]
    open_logits: Float[np.ndarray, "n k"]
    labels: Int[np.ndarray, " n"]

    def select(self, chosen: Bool[np.ndarray, " n"]) -> "Outputs":
        """Returns the outputs on the chosen examples."""
        return Outputs(*(array[chosen] for array in self))


SCORES: Mapping[str, Callable[[Outputs], Any]] = {
    "softmax": lambda out: softmax_score(out.logits, log=True),
    "mls": lambda out: max_logit_score(out.logits),
    "cbc": lambda out: cbc_score(out.logits, out.open_logits),
}
"""Name to score. SoftMax is ranked by its logarithm: the same order, without ties at 1.0."""


def evaluate(
    test: Outputs,
    validation: Outputs | None = None,
    *,
    gamma: float = 0.9,
    tpr: float = 0.95,
    scores: tuple[str, ...] = ("softmax", "mls", "cbc"),
) -> dict[str, Any]:
    """Returns closed-set accuracy, and for each score what it is worth as a detector of unknowns.

    Args:
      test: outputs on the test examples.
      validation: outputs on known examples held out of training, on which thresholds are fitted;
        without it there are no fitted ones.
      gamma: γ, for the probabilities of SoftMax and of the binary classifiers; maximum logit has
        the paper code's :data:`MAX_LOGIT_THRESHOLD` in its place.
      tpr: true-positive rate of the fitted thresholds and of the false-positive rate.
      scores: names in :data:`SCORES`.

    Raises:
      ValueError: ``gamma`` is no probability, or ``tpr`` no share.

    Returns:
      ``num_known``, ``num_unknown``, ``closed_accuracy`` (absent without known examples) and
      ``scores``: name to ``threshold``, ``open_accuracy``, ``auroc``, ``oscr``, ``fpr_at_tpr`` and,
      with validation data, ``fitted_threshold`` and ``fitted_open_accuracy``. Thresholds are in
      the score's own unit (log-probability, logit, logit), ``None`` where γ makes them infinite.
      Measures that need both known and
      unknown examples are absent where one kind is missing.
    """
    known = test.labels != UNKNOWN
    result: dict[str, Any] = {
        "num_known": int(known.sum()),
        "num_unknown": int((~known).sum()),
        "scores": {},
    }
    predicted = np.argmax(test.logits, axis=-1)
    if known.any():
        result["closed_accuracy"] = metrics.closed_set_accuracy(
            predicted[known], test.labels[known]
        )
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: got {gamma}, wanted a probability in [0, 1]")
    fixed = {
        "softmax": float(np.log(gamma)) if gamma > 0 else -np.inf,
        "mls": MAX_LOGIT_THRESHOLD,
        "cbc": float(scipy.special.logit(gamma)),
    }
    for name in scores:
        score = np.asarray(SCORES[name](test), np.float64)
        # JSON knows no infinity, which is what a γ of 0 or 1 is as a logit.
        finite = bool(np.isfinite(fixed[name]))
        row: dict[str, float | None] = {"threshold": fixed[name] if finite else None}
        fitted = None
        if validation is not None:
            held_out = np.asarray(SCORES[name](validation), np.float64)
            row["fitted_threshold"] = fitted = metrics.threshold_at_tpr(held_out, tpr=tpr)
        if known.any() and not known.all():
            row |= _detection(test.labels, predicted, score, tpr)
            row["open_accuracy"] = _accuracy(test.labels, predicted, score, fixed[name])
            if fitted is not None:
                row["fitted_open_accuracy"] = _accuracy(test.labels, predicted, score, fitted)
        result["scores"][name] = row
    if validation is not None and "cbc" in scores:
        held_out = np.asarray(SCORES["cbc"](validation), np.float64)
        result["fitted_gamma"] = calibrate_gamma(held_out, tpr=tpr)
    return result


def _detection(labels, predicted, score, tpr) -> dict[str, float]:
    known = labels != UNKNOWN
    correct = (predicted == labels)[known]
    return {
        "auroc": metrics.auroc(score[known], score[~known]),
        "oscr": metrics.oscr(score[known], correct, score[~known]),
        "fpr_at_tpr": metrics.fpr_at_tpr(score[known], score[~known], tpr=tpr),
    }


def _accuracy(labels, predicted, score, threshold) -> float:
    decided = np.where(score >= threshold, predicted, UNKNOWN)
    return metrics.open_set_accuracy(decided, labels, unknown=UNKNOWN)
