"""Metrics of open-set recognition. Known is the positive class; higher scores are more known.

All are computed in float64 and treat ties exactly (half a win each). A score equal to the threshold
is accepted unless stated otherwise.
"""

import math

import chex
import numpy as np
from numpy.typing import ArrayLike


def auroc(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Computes the area under the ROC curve: P(known > unknown) + P(known = unknown) / 2.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      unknown_scores: ``[m]``, scores of examples of unknown classes.

    Raises:
      ValueError: either is empty or contains NaN.

    >>> auroc([0.9, 0.6], [0.6, 0.1])
    0.875
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    return float(np.mean(_wins(known, unknown)))


def oscr(known_scores: ArrayLike, known_correct: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Computes the area under the open-set classification rate curve (Dhamija et al. 2018).

    The curve plots the share of known examples that are accepted *and* classified correctly against
    the share of unknown examples that are accepted, as the threshold falls. The area is that of
    trapezoids through one point per distinct score. It equals :func:`auroc` if all known examples
    are classified correctly.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      known_correct: ``[n]``, whether the closed-set prediction of each is correct.
      unknown_scores: ``[m]``, scores of examples of unknown classes.

    Raises:
      ValueError: scores are empty or contain NaN.

    >>> oscr([0.9, 0.6], [True, False], [0.6, 0.1])
    0.5
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    correct = np.asarray(known_correct, bool)
    chex.assert_equal_shape([correct, known])
    # With the order of summation swapped, the trapezoids over unknown examples become each correct
    # known example's share of wins.
    return float(np.mean(correct * _wins(known, unknown)))


def threshold_at_tpr(known_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Finds the highest threshold that accepts at least the share ``tpr`` of the known scores.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      tpr: true-positive rate, in (0, 1].

    Raises:
      ValueError: scores are empty or contain NaN, or ``tpr`` is out of range.

    >>> threshold_at_tpr([0.1, 0.2, 0.3, 0.4], tpr=0.75)
    0.2
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: got {tpr}, wanted a share in (0, 1]")
    known = np.sort(_scores("known_scores", known_scores))
    accepted = math.ceil(tpr * known.size - 1e-9)  # 0.07 * 100 is 7.000000000000001
    return float(known[known.size - max(accepted, 1)])


def fpr_at_tpr(known_scores: ArrayLike, unknown_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Computes the share of unknown examples accepted at the true-positive rate ``tpr``.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      unknown_scores: ``[m]``, scores of examples of unknown classes.
      tpr: true-positive rate, in (0, 1].

    Raises:
      ValueError: scores are empty or contain NaN, or ``tpr`` is out of range.

    >>> fpr_at_tpr([1.0, 2.0, 3.0, 4.0], [0.0, 2.0], tpr=0.75)
    0.5
    """
    unknown = _scores("unknown_scores", unknown_scores)
    return float(np.mean(unknown >= threshold_at_tpr(known_scores, tpr=tpr)))


def fpr_at_tpr_of_unknown(
    known_scores: ArrayLike, unknown_scores: ArrayLike, *, tpr: float = 0.95
) -> float:
    """Computes the share of known examples rejected along with a share ``tpr`` of unknown ones.

    This is the metric of OpenOOD and of most papers on out-of-distribution detection: unknown
    examples are positive, whereas in :func:`fpr_at_tpr` known ones are. Here a score equal to the
    threshold counts as rejected.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      unknown_scores: ``[m]``, scores of examples of unknown classes.
      tpr: share of unknown examples to reject, in (0, 1].

    Raises:
      ValueError: scores are empty or contain NaN, or ``tpr`` is out of range.

    >>> fpr_at_tpr_of_unknown([1.0, 2.0, 3.0, 4.0], [0.0, 2.0], tpr=1.0)
    0.5
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    return fpr_at_tpr(-unknown, -known, tpr=tpr)


def aupr_in(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Computes the area under the precision-recall curve, with known examples positive.

    The area is computed by trapezoids through one point per distinct score and precision 1 at
    recall 0, as in OpenOOD and pytorch-ood. It depends on the numbers of known and unknown
    examples.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      unknown_scores: ``[m]``, scores of examples of unknown classes.

    Raises:
      ValueError: either is empty or contains NaN.

    >>> aupr_in([0.9, 0.6], [0.6, 0.1])  # precision 1, 1 and 2/3 at recall 0, 1/2 and 1
    0.9166666666666666
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    thresholds = np.unique(np.concatenate([known, unknown]))[::-1]
    accepted = [_reached(scores, thresholds) for scores in (known, unknown)]
    recall = np.concatenate([[0], accepted[0] / known.size])
    precision = np.concatenate([[1], accepted[0] / (accepted[0] + accepted[1])])
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1])) / 2)


def aupr_out(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Computes the area under the precision-recall curve, with unknown examples positive.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      unknown_scores: ``[m]``, scores of examples of unknown classes.

    Raises:
      ValueError: either is empty or contains NaN.
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    return aupr_in(-unknown, -known)


def ccr_at_fpr(
    known_scores: ArrayLike,
    known_correct: ArrayLike,
    unknown_scores: ArrayLike,
    *,
    fpr: float = 0.1,
) -> float:
    """Computes the correct classification rate at a false-positive rate (Dhamija et al. 2018).

    This is the share of known examples that are accepted and classified correctly, at the lowest
    threshold that accepts at most the share ``fpr`` of unknown examples.

    Args:
      known_scores: ``[n]``, scores of examples of known classes.
      known_correct: ``[n]``, whether the closed-set prediction of each is correct.
      unknown_scores: ``[m]``, scores of examples of unknown classes.
      fpr: allowed false-positive rate, in [0, 1].

    Raises:
      ValueError: scores are empty or contain NaN, or ``fpr`` is out of range.

    >>> ccr_at_fpr([0.9, 0.6, 0.2], [True, True, True], [0.6, 0.1], fpr=0.5)  # above 0.1
    1.0
    """
    if not 0 <= fpr <= 1:
        raise ValueError(f"fpr: got {fpr}, wanted a share in [0, 1]")
    known = _scores("known_scores", known_scores)
    unknown = np.sort(_scores("unknown_scores", unknown_scores))
    correct = np.asarray(known_correct, bool)
    chex.assert_equal_shape([correct, known])
    allowed = math.floor(fpr * unknown.size + 1e-9)  # 0.07 * 100 is 7.000000000000001
    if allowed >= unknown.size:
        return float(np.mean(correct))
    return float(np.mean((known > unknown[unknown.size - 1 - allowed]) & correct))


def closed_set_accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Computes the accuracy on examples of known classes.

    Args:
      predictions: ``[n]``, predicted classes, integers.
      labels: ``[n]``, true classes, integers.

    Raises:
      ValueError: there are no examples.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    chex.assert_rank([predictions, labels], 1)
    chex.assert_equal_shape([predictions, labels])
    if not labels.size:
        raise ValueError("labels: got none, wanted [n] with n > 0")
    return float(np.mean(predictions == labels))


def open_set_accuracy(predictions: ArrayLike, labels: ArrayLike, *, unknown: int) -> float:
    """Computes the accuracy over the known classes and "unknown" (Safaei et al. 2023, section 4).

    Args:
      predictions: ``[n]`` integers: a known class, or ``unknown``.
      labels: ``[n]`` integers: a known class, or ``unknown``.
      unknown: the index that stands for unknown in both.

    Raises:
      ValueError: there are no examples, or no label is ``unknown``. The unknown examples then
        probably have another index, and every rejection would count as an error.
    """
    accuracy = closed_set_accuracy(predictions, labels)
    if not np.any(np.asarray(labels) == unknown):
        raise ValueError(f"labels: none is {unknown}, the index given for unknown")
    return accuracy


def _scores(name: str, values: ArrayLike) -> np.ndarray:
    scores = np.asarray(values, np.float64)
    chex.assert_rank(scores, 1)
    if not scores.size:
        raise ValueError(f"{name}: got shape {scores.shape}, wanted [n] with n > 0")
    if np.isnan(scores).any():
        raise ValueError(f"{name}: {np.isnan(scores).sum()} of {scores.size} are NaN")
    return scores


def _reached(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Counts the scores that reach each threshold."""
    return scores.size - np.searchsorted(np.sort(scores), thresholds, "left")


def _wins(known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Returns, for each known score, the share of unknown scores below it; ties count half."""
    ordered = np.sort(unknown)
    below, not_above = (np.searchsorted(ordered, known, side) for side in ("left", "right"))
    return (below + not_above) / (2 * unknown.size)
