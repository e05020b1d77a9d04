"""Open-set measures of labels, predictions and scores."""

from collections.abc import Iterable, Mapping
from typing import Any

import chex
import numpy as np

from jaxatr import metrics
from jaxatr.openset.conformal import conformal_threshold
from jaxatr.openset.outputs import UNKNOWN
from jaxatr.openset.rule import SCORE, calibrate_gamma
from jaxatr.openset.score import Score
from jaxatr.typing import Int, Shaped

FPR = 0.1
"""False-positive rate at which the correct classification rate is measured."""


def fixed_thresholds(scores: Iterable[Score], gamma: float) -> dict[str, float]:
    """Computes the thresholds of scores that correspond to γ, by name.

    Each is in the unit of its score and may be infinite. Scores without such a threshold are left
    out.

    Raises:
      ValueError: ``gamma`` is not in [0, 1].
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma: got {gamma}, wanted a probability in [0, 1]")
    return {one.name: one.fixed_threshold(gamma) for one in scores if one.fixed_threshold}


def evaluate(
    labels: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, " n"],
    scores: Mapping[str, Shaped[np.ndarray, " n"]],
    validation: Mapping[str, Shaped[np.ndarray, " m"]] | None = None,
    *,
    fixed: Mapping[str, float] | None = None,
    decided: Mapping[str, float] | None = None,
    named: Mapping[str, Int[np.ndarray, " n"]] | None = None,
    tpr: float = 0.95,
) -> dict[str, Any]:
    """Measures closed-set accuracy, and how well each score detects unknowns.

    Args:
      labels: ``[n]``, the test examples' known classes, or :data:`UNKNOWN`.
      predicted: ``[n]``, the known class that each most resembles.
      scores: the test examples' scores ``[n]``, by name; higher is more known.
      validation: scores ``[m]`` of known examples held out of training, by name, for fitting
        thresholds; None to fit none.
      fixed: thresholds by score name, from :func:`fixed_thresholds`; none by default.
      decided: fitted thresholds by score name, to use instead of those of ``validation``.
      named: for each score that names the class itself, its classes ``[n]``, used instead of
        ``predicted``.
      tpr: true-positive rate of the fitted thresholds and of ``fpr_at_tpr``.

    Returns:
      ``num_known``, ``num_unknown``, ``closed_accuracy`` (absent without known examples) and
      ``scores``, which maps each name to ``threshold``, ``open_accuracy``, ``auroc``, ``oscr``,
      ``fpr_at_tpr``, ``fpr_at_tpr_of_unknown``, ``aupr_in``, ``aupr_out``, ``ccr_at_fpr`` (at
      :data:`FPR`) and, with validation data, ``fitted_threshold`` and ``fitted_open_accuracy``.
      ``fitted_threshold`` is that of :func:`~jaxatr.openset.conformal_threshold`, or the lowest
      validation score if there are too few for it; None if nothing is to be rejected.
      ``threshold`` is None if it is infinite or not in ``fixed``; ``open_accuracy`` is absent
      without a fixed threshold. A score that names the class has its own ``closed_accuracy``.
      Measures that compare known with unknown examples are absent if either kind is missing. With
      validation data, ``fitted_gamma`` is the fitted γ of the paper's rule.

    Raises:
      ValueError: ``tpr`` is not in (0, 1].
    """
    chex.assert_rank(labels, 1)
    chex.assert_equal_shape([labels, predicted, *scores.values()])
    known = labels != UNKNOWN
    result: dict[str, Any] = {
        "num_known": int(known.sum()),
        "num_unknown": int((~known).sum()),
        "scores": {},
    }
    if known.any():
        result["closed_accuracy"] = metrics.closed_set_accuracy(predicted[known], labels[known])
    held_out = {name: np.asarray(values, np.float64) for name, values in (validation or {}).items()}
    decided = decided or {}
    thresholds = {
        name: conformal_threshold(held_out[name], tpr=tpr, least=1) for name in scores if held_out
    } | dict(decided)
    for name, values in scores.items():
        classes = (named or {}).get(name, predicted)
        row = _measured(
            labels, classes, values, (fixed or {}).get(name), thresholds.get(name), tpr=tpr
        )
        if classes is not predicted and known.any():
            row["closed_accuracy"] = metrics.closed_set_accuracy(classes[known], labels[known])
        result["scores"][name] = row
    if held_out and SCORE in scores:
        fitted = np.array([decided[SCORE]]) if SCORE in decided else held_out[SCORE]
        result["fitted_gamma"] = calibrate_gamma(fitted, tpr=tpr)
    return result


def _measured(
    labels: Int[np.ndarray, " n"],
    classes: Int[np.ndarray, " n"],
    values: Shaped[np.ndarray, " n"],
    threshold: float | None,
    fitted: float | None,
    *,
    tpr: float,
) -> dict[str, float | None]:
    """Measures one score with its fixed and its fitted threshold, None for none."""
    score = np.asarray(values, np.float64)
    # JSON has no infinity, the logit of a γ of 0 or 1.
    row = {"threshold": None if threshold is None else _finite(threshold)}
    if fitted is not None:
        row["fitted_threshold"] = _finite(fitted)
    known = labels != UNKNOWN
    if known.any() and not known.all():
        row |= _detection(labels, classes, score, tpr)
        if threshold is not None:
            row["open_accuracy"] = _accuracy(labels, classes, score, threshold)
        if fitted is not None:
            row["fitted_open_accuracy"] = _accuracy(labels, classes, score, fitted)
    return row


def _finite(threshold: float) -> float | None:
    return threshold if np.isfinite(threshold) else None


def _detection(labels, predicted, score, tpr) -> dict[str, float]:
    known = labels != UNKNOWN
    correct = (predicted == labels)[known]
    return {
        "auroc": metrics.auroc(score[known], score[~known]),
        "oscr": metrics.oscr(score[known], correct, score[~known]),
        "fpr_at_tpr": metrics.fpr_at_tpr(score[known], score[~known], tpr=tpr),
        "fpr_at_tpr_of_unknown": metrics.fpr_at_tpr_of_unknown(
            score[known], score[~known], tpr=tpr
        ),
        "aupr_in": metrics.aupr_in(score[known], score[~known]),
        "aupr_out": metrics.aupr_out(score[known], score[~known]),
        "ccr_at_fpr": metrics.ccr_at_fpr(score[known], correct, score[~known], fpr=FPR),
    }


def _accuracy(labels, predicted, score, threshold) -> float:
    decided = np.where(score >= threshold, predicted, UNKNOWN)
    return metrics.open_set_accuracy(decided, labels, unknown=UNKNOWN)
