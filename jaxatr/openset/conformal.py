r"""Acceptance as a conformal test, whose promise holds for any finite number of examples.

Vovk et al. (2005), "Algorithmic Learning in a Random World", section 2; per class (Mondrian),
section 4.5. With :math:`n` held-out known examples and a further one that is exchangeable with
them, each of the :math:`n + 1` ranks of its score is equally likely, so that

.. math:: p = \frac{1 + \#\{i : v_i \le s\}}{n + 1}, \qquad P(p \le \alpha) \le \alpha .

An example is accepted where p is above :math:`\alpha = 1 - \mathrm{TPR}`. That is where its score
reaches the k-th smallest held-out one, :math:`k = \lfloor \alpha (n + 1) \rfloor`; a score equal to
it is accepted. A known example is rejected with probability :math:`k / (n + 1)` where no scores are
tied, and less where some are.
"""

import math
from fractions import Fraction

import chex
import numpy as np
from numpy.typing import ArrayLike

from jaxatr.typing import Float


def conformal_threshold(known_scores: ArrayLike, *, tpr: float = 0.95) -> float:
    """Finds the highest threshold below which at most the share ``1 - tpr`` of the known falls.

    Args:
      known_scores: ``[n]``, of known examples that took no part in the fit of the score.
      tpr: share of known examples that is accepted, in (0, 1].

    Returns:
      The threshold; a score that equals it is accepted. Minus infinity, which accepts everything,
      where the level needs more examples (:func:`examples_needed`).

    Raises:
      ValueError: a score is no number, or ``tpr`` is out of range.

    >>> conformal_threshold([0.3, 0.1, 0.4, 0.2], tpr=0.6)  # floor(0.4 * 5) = 2
    0.2
    """
    known = np.sort(_scores(known_scores))
    rank = conformal_rank(len(known), tpr=tpr)
    return float(known[rank - 1]) if rank else -math.inf


def conformal_rank(examples: int, *, tpr: float = 0.95) -> int:
    """Finds which of so many known scores, in rising order, is the threshold; 0 for none.

    Raises:
      ValueError: ``tpr`` is out of range.
    """
    return math.floor(_level(tpr) * (examples + 1))


def conformal_p_values(known_scores: ArrayLike, scores: ArrayLike) -> Float[np.ndarray, " m"]:
    """Computes how usual scores are among those of known examples, ``[m]`` in (0, 1].

    Args:
      known_scores: ``[n]``, as of :func:`conformal_threshold`.
      scores: ``[m]``, of further examples.

    Raises:
      ValueError: a score is no number.

    >>> conformal_p_values([1.0, 2.0, 3.0], [0.0, 2.0]).tolist()
    [0.25, 0.75]
    """
    known = np.sort(_scores(known_scores))
    return (1 + np.searchsorted(known, _scores(scores), side="right")) / (len(known) + 1)


def examples_needed(tpr: float) -> int:
    """Counts the known examples without which a test at ``1 - tpr`` cannot reject anything.

    Raises:
      ValueError: ``tpr`` is out of range, or 1, at which nothing is ever rejected.

    >>> examples_needed(0.95)
    19
    """
    level = _level(tpr)
    if not level:
        raise ValueError(f"tpr: got {tpr}, at which no known example may be rejected")
    return math.ceil(1 / level) - 1


def class_thresholds(
    known_scores: ArrayLike,
    predicted: ArrayLike,
    num_classes: int,
    *,
    tpr: float = 0.95,
) -> Float[np.ndarray, " k"]:
    """Finds a threshold for each class: of the known that are taken for it, the promise holds.

    The groups are of the *predicted* class, which an example in use has too (a Mondrian taxonomy).

    Args:
      known_scores: ``[n]``, as of :func:`conformal_threshold`.
      predicted: ``[n]``, the class that each was taken for, right or wrong.
      num_classes: k.
      tpr: as of :func:`conformal_threshold`.

    Returns:
      ``[k]``; minus infinity for a class for which too few examples were taken.
    """
    known, groups = _scores(known_scores), np.asarray(predicted)
    chex.assert_equal_shape([known, groups])
    found = [conformal_threshold(known[groups == c], tpr=tpr) for c in range(num_classes)]
    return np.array(found, np.float64)


def _level(tpr: float) -> Fraction:
    """Returns 1 - TPR without the rounding that makes 20 * (1 - 0.95) more than 1."""
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr: got {tpr}, wanted a share in (0, 1]")
    return 1 - Fraction(repr(float(tpr)))


def _scores(values: ArrayLike) -> Float[np.ndarray, " n"]:
    scores = np.asarray(values, np.float64)
    chex.assert_rank(scores, 1)
    if np.isnan(scores).any():
        raise ValueError(f"scores: {np.isnan(scores).sum()} of {scores.size} are NaN")
    return scores
