"""Measures of open-set recognition. Known is the positive class; a higher score is more known.

All are computed in float64, treat tied scores exactly (half a win each), and accept a score that
equals the threshold.
"""

import math

import chex
import numpy as np
from numpy.typing import ArrayLike


def auroc(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Returns the area under the ROC curve: P(known > unknown) + P(known = unknown) / 2.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      unknown_scores: ``[m]``, of the examples of unknown classes.

    Raises:
      ValueError: either is empty or holds a NaN.

    >>> auroc([0.9, 0.6], [0.6, 0.1])
    0.875
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    return float(np.mean(_wins(known, unknown)))


def oscr(known_scores: ArrayLike, known_correct: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Returns the area under the open-set classification rate curve (Dhamija et al. 2018).

    The curve is the share of known examples that are accepted *and* classified correctly, over the
    share of unknown examples that are accepted, as the threshold falls; the area is the trapezoid
    through one point per distinct score. With every known example correct it is :func:`auroc`.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      known_correct: ``[n]``, whether the closed-set prediction of each is right.
      unknown_scores: ``[m]``, of the examples of unknown classes.

    Raises:
      ValueError: scores are empty or hold a NaN.

    >>> oscr([0.9, 0.6], [True, False], [0.6, 0.1])
    0.5
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    correct = np.asarray(known_correct, bool)
    chex.assert_equal_shape([correct, known])
    # Swapping sums: the trapezoid over the unknowns is each correct known's share of wins.
    return float(np.mean(correct * _wins(known, unknown)))


def threshold_at_tpr(known_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Returns the highest threshold that accepts at least the share ``tpr`` of the known scores.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      tpr: wanted true-positive rate, in (0, 1].

    Raises:
      ValueError: scores are empty or hold a NaN, or ``tpr`` is out of range.

    >>> threshold_at_tpr([0.1, 0.2, 0.3, 0.4], tpr=0.75)
    0.2
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: got {tpr}, wanted a share in (0, 1]")
    known = np.sort(_scores("known_scores", known_scores))
    accepted = math.ceil(tpr * known.size - 1e-9)  # 0.07 * 100 is 7.000000000000001
    return float(known[known.size - max(accepted, 1)])


def fpr_at_tpr(known_scores: ArrayLike, unknown_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Returns the share of unknown examples accepted where the share ``tpr`` of known ones is.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      unknown_scores: ``[m]``, of the examples of unknown classes.
      tpr: wanted true-positive rate, in (0, 1].

    Raises:
      ValueError: scores are empty or hold a NaN, or ``tpr`` is out of range.

    >>> fpr_at_tpr([1.0, 2.0, 3.0, 4.0], [0.0, 2.0], tpr=0.75)
    0.5
    """
    unknown = _scores("unknown_scores", unknown_scores)
    return float(np.mean(unknown >= threshold_at_tpr(known_scores, tpr=tpr)))


def fpr_at_tpr_of_unknown(
    known_scores: ArrayLike, unknown_scores: ArrayLike, *, tpr: float = 0.95
) -> float:
    """Computes the share of known examples rejected where the share ``tpr`` of unknown ones is.

    This is the measure of OpenOOD and of most papers on out-of-distribution data, which call the
    unknown examples positive; :func:`fpr_at_tpr` calls the known ones so. A score equal to the
    threshold counts as rejected here.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      unknown_scores: ``[m]``, of the examples of unknown classes.
      tpr: wanted share of unknown examples, in (0, 1].

    Raises:
      ValueError: scores are empty or hold a NaN, or ``tpr`` is out of range.

    >>> fpr_at_tpr_of_unknown([1.0, 2.0, 3.0, 4.0], [0.0, 2.0], tpr=1.0)
    0.5
    """
    known = _scores("known_scores", known_scores)
    unknown = _scores("unknown_scores", unknown_scores)
    return fpr_at_tpr(-unknown, -known, tpr=tpr)


def aupr_in(known_scores: ArrayLike, unknown_scores: ArrayLike) -> float:
    """Computes the area under the curve of precision over recall, known examples positive.

    The trapezoid through one point per distinct score and precision 1 at recall 0, as OpenOOD and
    pytorch-ood have it. It depends on how many examples of each kind there are.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      unknown_scores: ``[m]``, of the examples of unknown classes.

    Raises:
      ValueError: either is empty or holds a NaN.

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
    """Computes the area under the curve of precision over recall, unknown examples positive.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      unknown_scores: ``[m]``, of the examples of unknown classes.

    Raises:
      ValueError: either is empty or holds a NaN.
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

    That is the share of known examples that are accepted and classified correctly, at the lowest
    threshold that accepts at most the share ``fpr`` of unknown ones.

    Args:
      known_scores: ``[n]``, of the examples of known classes.
      known_correct: ``[n]``, whether the closed-set prediction of each is right.
      unknown_scores: ``[m]``, of the examples of unknown classes.
      fpr: allowed share, in [0, 1].

    Raises:
      ValueError: scores are empty or hold a NaN, or ``fpr`` is out of range.

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
    """Returns the share of examples of known classes whose predicted class is right.

    Args:
      predictions: ``[n]`` integers.
      labels: ``[n]`` integers.

    Raises:
      ValueError: there are none.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    chex.assert_rank([predictions, labels], 1)
    chex.assert_equal_shape([predictions, labels])
    if not labels.size:
        raise ValueError("labels: got none, wanted [n] with n > 0")
    return float(np.mean(predictions == labels))


def open_set_accuracy(predictions: ArrayLike, labels: ArrayLike, *, unknown: int) -> float:
    """Returns the accuracy over N + 1 classes: the N known ones and "unknown" (paper, section 4).

    Args:
      predictions: ``[n]`` integers: a known class, or ``unknown``.
      labels: ``[n]`` integers: a known class, or ``unknown``.
      unknown: the index that stands for unknown, in both.

    Raises:
      ValueError: there are none, or no label is ``unknown`` (a sign that the unknown examples
        carry another index, which would count every rejection as an error).
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
    """Returns how many scores reach each threshold."""
    return scores.size - np.searchsorted(np.sort(scores), thresholds, "left")


def _wins(known: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """Returns for each known score the share of unknown ones below it, ties counted half."""
    ordered = np.sort(unknown)
    below, not_above = (np.searchsorted(ordered, known, side) for side in ("left", "right"))
    return (below + not_above) / (2 * unknown.size)
