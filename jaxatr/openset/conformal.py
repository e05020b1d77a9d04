r"""Acceptance as a conformal test, whose guarantee holds for any finite number of examples.

Vovk et al. (2005), "Algorithmic Learning in a Random World", section 2; for each class separately
(Mondrian), section 4.5. If a new example is exchangeable with :math:`n` held-out known examples,
its score is equally likely to have each of the :math:`n + 1` ranks, so that

.. math:: p = \frac{1 + \#\{i : v_i \le s\}}{n + 1}, \qquad P(p \le \alpha) \le \alpha .

An example is accepted if p exceeds :math:`\alpha = 1 - \mathrm{TPR}`. Equivalently, its score is at
least the k-th smallest held-out score, with :math:`k = \lfloor \alpha (n + 1) \rfloor`. Without
ties, a known example is rejected with probability :math:`k / (n + 1)`; ties only lower it.
"""

import math
from fractions import Fraction

import chex
import numpy as np
from numpy.typing import ArrayLike

from jaxatr.openset.inputs import as_classes, as_numpy
from jaxatr.typing import Float


def conformal_threshold(known_scores: ArrayLike, *, tpr: float = 0.95, least: int = 0) -> float:
    """Computes the highest threshold that rejects at most the share ``1 - tpr`` of known examples.

    Args:
      known_scores: ``[n]``, scores of known examples that were not used to fit the score.
      tpr: share of known examples to accept, in (0, 1].
      least: smallest rank, see :func:`conformal_rank`. With 1, the lowest score is the threshold if
        there are fewer than :func:`examples_needed`.

    Returns:
      The threshold; a score equal to it is accepted. Minus infinity, which accepts everything, if
      the rank is 0.

    Raises:
      ValueError: a score is NaN, or ``tpr`` is out of range.

    >>> conformal_threshold([0.3, 0.1, 0.4, 0.2], tpr=0.6)  # floor(0.4 * 5) = 2
    0.2
    """
    known = np.sort(_scores(known_scores))
    rank = conformal_rank(len(known), tpr=tpr, least=least)
    return float(known[rank - 1]) if rank else -math.inf


def conformal_rank(examples: int, *, tpr: float = 0.95, least: int = 0) -> int:
    """Computes the rank of the threshold among the known scores, from 1 for the lowest.

    A known example is rejected with a probability of at most rank / (examples + 1).

    Args:
      examples: number of known scores.
      tpr: share of known examples to accept, in (0, 1].
      least: smallest rank, unless ``tpr`` is 1 or there are fewer examples.

    Returns:
      The rank; 0 if nothing is to be rejected.

    Raises:
      ValueError: ``tpr`` is out of range.
    """
    level = _level(tpr)
    return max(math.floor(level * (examples + 1)), min(least, examples) if level else 0)


def rank_below(examples: int, *, tpr: float = 0.95) -> int:
    """Computes the lowest rank whose promise is at most ``tpr``, at least 1.

    A threshold that is never above the score of this rank accepts a known example with a
    probability of at least 1 - rank / (examples + 1), however it was found.

    >>> rank_below(6, tpr=0.95), rank_below(30, tpr=0.95)
    (1, 2)
    """
    return min(max(math.ceil(_level(tpr) * (examples + 1)), 1), examples)


def promised(known_scores: ArrayLike, unseen: int, *, tpr: float = 0.95) -> Float[np.ndarray, " n"]:
    """Lowers scores so that their conformal threshold keeps the promise of some of them.

    The threshold of all scores together is then at most the r-th lowest of the first ``unseen``
    scores, with r from :func:`rank_below`. A new known example that is exchangeable with these is
    accepted with a probability of at least 1 - r / (unseen + 1), whatever the other scores are.

    Args:
      known_scores: ``[n]``.
      unseen: number of examples that were not used to fit the score, at least 1.
      tpr: share of known examples to accept, in (0, 1].

    >>> promised([1.0, 8.0, 5.0, 6.0, 7.0], 2, tpr=0.7).tolist()  # rank 1 of the first two
    [1.0, 8.0, 5.0, 6.0, 7.0]
    >>> promised([3.0, 4.0, 5.0, 6.0, 7.0], 2, tpr=0.5).tolist()  # rank 3 of all, 2 of two
    [3.0, 4.0, 4.0, 6.0, 7.0]
    """
    scores = _scores(known_scores).copy()
    held_out = np.sort(scores[:unseen])
    limit = held_out[rank_below(unseen, tpr=tpr) - 1]
    missing = conformal_rank(len(scores), tpr=tpr, least=1) - int(np.sum(held_out <= limit))
    lowest = unseen + np.argsort(scores[unseen:], kind="stable")[: max(missing, 0)]
    scores[lowest] = np.minimum(scores[lowest], limit)
    return scores


def conformal_p_values(known_scores: ArrayLike, scores: ArrayLike) -> Float[np.ndarray, " m"]:
    """Computes the conformal p-values of new scores, ``[m]`` in (0, 1].

    Args:
      known_scores: ``[n]``, scores of known examples that were not used to fit the score.
      scores: ``[m]``, scores of new examples.

    Raises:
      ValueError: a score is NaN.

    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0]).tolist()
    [0.25, 0.75]
    """
    known = np.sort(_scores(known_scores))
    return (1 + np.searchsorted(known, _scores(scores), side="right")) / (len(known) + 1)


def examples_needed(tpr: float, rank: int = 1) -> int:
    """Computes how many known examples a test at level ``1 - tpr`` needs to reject anything.

    Args:
      tpr: share of known examples to accept.
      rank: wanted rank of the threshold (:func:`conformal_rank`).

    Raises:
      ValueError: ``tpr`` is out of range, or is 1, which never rejects anything.

    >>> examples_needed(0.95), examples_needed(0.95, 3)
    (19, 59)
    """
    level = _level(tpr)
    if not level:
        raise ValueError(f"tpr: got {tpr}, which never rejects anything, wanted less than 1")
    return math.ceil(rank / level) - 1


def class_thresholds(
    known_scores: ArrayLike,
    predicted: ArrayLike,
    num_classes: int,
    *,
    tpr: float = 0.95,
    least: int = 0,
) -> Float[np.ndarray, " k"]:
    """Computes a threshold for the examples predicted as each class (a Mondrian taxonomy).

    Examples are grouped by their *predicted* class, because it is also available at test time.

    Args:
      known_scores: ``[n]``, scores of known examples that were not used to fit the score.
      predicted: ``[n]``, the predicted class of each, right or wrong.
      num_classes: k.
      tpr: share of known examples to accept, in (0, 1].
      least: smallest rank, see :func:`conformal_rank`.

    Returns:
      ``[k]``; minus infinity for a class with too few predicted examples.
    """
    known, groups = _scores(known_scores), as_classes("predicted", predicted)
    chex.assert_equal_shape([known, groups])
    thresholds = [
        conformal_threshold(known[groups == c], tpr=tpr, least=least) for c in range(num_classes)
    ]
    return np.array(thresholds, np.float64)


def _level(tpr: float) -> Fraction:
    """Computes 1 - TPR exactly; in floating point, 20 * (1 - 0.95) exceeds 1."""
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: got {tpr}, wanted a share in (0, 1]")
    return 1 - Fraction(repr(float(tpr)))


def _scores(values: ArrayLike) -> Float[np.ndarray, " n"]:
    scores = as_numpy(values, np.float64)
    chex.assert_rank(scores, 1)
    if np.isnan(scores).any():
        raise ValueError(f"scores: {np.isnan(scores).sum()} of {scores.size} are NaN")
    return scores
