"""From a network's outputs on known and unknown examples to the figures of the paper's tables."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.special

from jaxatr import metrics
from jaxatr.openset.detectors import DEFAULT, fit_detectors
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.rule import calibrate_gamma

MAX_LOGIT_THRESHOLD = 3.0
"""The logit at which the paper's own code rejects by maximum logit (table 2)."""


def evaluate(
    test: Outputs,
    validation: Outputs | None = None,
    *,
    gamma: float = 0.9,
    tpr: float = 0.95,
    scores: Mapping[str, Callable[[Outputs], Any]] | None = None,
) -> dict[str, Any]:
    """Returns closed-set accuracy, and for each score what it is worth as a detector of unknowns.

    Args:
      test: outputs on the test examples.
      validation: outputs on known examples held out of training, on which thresholds are fitted;
        without it there are no fitted ones.
      gamma: γ, for the probabilities of SoftMax, of the binary classifiers and of OpenMax's known
        classes together; maximum logit has the paper code's :data:`MAX_LOGIT_THRESHOLD` in its
        place, and the scores that are no probability have no fixed threshold.
      tpr: true-positive rate of the fitted thresholds and of the false-positive rate.
      scores: name to score, of :func:`~jaxatr.openset.fit_detectors`; those of
        :data:`~jaxatr.openset.DEFAULT` unless given.

    Raises:
      ValueError: ``gamma`` is no probability, or ``tpr`` no share.

    Returns:
      ``num_known``, ``num_unknown``, ``closed_accuracy`` (absent without known examples) and
      ``scores``: name to ``threshold``, ``open_accuracy``, ``auroc``, ``oscr``, ``fpr_at_tpr`` and,
      with validation data, ``fitted_threshold`` and ``fitted_open_accuracy``. Thresholds are in
      the score's own unit (log-probability, logit, logit), ``None`` where γ makes them infinite
      or the score has no fixed one; then there is no ``open_accuracy`` of it either.
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
        "openmax": float(scipy.special.logit(gamma)),
        "gopenmax": float(scipy.special.logit(gamma)),
    }
    scores = fit_detectors(DEFAULT).scores if scores is None else scores
    for name, score_of in scores.items():
        score, threshold = np.asarray(score_of(test), np.float64), fixed.get(name)
        # JSON knows no infinity, which is what a γ of 0 or 1 is as a logit.
        finite = threshold is not None and np.isfinite(threshold)
        row: dict[str, float | None] = {"threshold": threshold if finite else None}
        fitted = None
        if validation is not None:
            held_out = np.asarray(score_of(validation), np.float64)
            row["fitted_threshold"] = fitted = metrics.threshold_at_tpr(held_out, tpr=tpr)
        if known.any() and not known.all():
            row |= _detection(test.labels, predicted, score, tpr)
            if threshold is not None:
                row["open_accuracy"] = _accuracy(test.labels, predicted, score, threshold)
            if fitted is not None:
                row["fitted_open_accuracy"] = _accuracy(test.labels, predicted, score, fitted)
        result["scores"][name] = row
    if validation is not None and "cbc" in scores:
        held_out = np.asarray(scores["cbc"](validation), np.float64)
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
