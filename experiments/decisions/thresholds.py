"""Thresholds for few known chips, and the probability of being known. Arrays in, numbers out."""

import math

import numpy as np

from experiments.decisions import package
from jaxatr.typing import Bool, Float, Int

LEAST = 20
"""Known chips below which a quantile is extrapolated instead of counted."""


def threshold(known: Float[np.ndarray, " n"], tpr: float, *, tail: float = 3.0) -> float:
    """Computes a threshold that accepts about the share ``tpr`` of known chips, also from few.

    With enough chips it is the conformal threshold. With fewer, the scores' spread below the median
    is extrapolated, so that there is always a finite threshold; no share is promised then.

    Args:
      known: ``[n]``, n > 1, scores of known chips that were not used in any fit.
      tpr: share to accept.
      tail: distance of the extrapolated threshold from the median, in spreads.
    """
    found = package.conformal_threshold(known, tpr)
    if math.isfinite(found):
        return found
    middle = float(np.median(known))
    below = middle - known[known <= middle]
    spread = 1.4826 * float(np.median(below)) or float(known.std())
    # The lowest of n chips is a quantile too: the threshold is not above it.
    return min(float(known.min()), middle - tail * spread)


def even_odds(
    scores: Float[np.ndarray, " n"], known: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Returns weights that give known and unknown chips half of the weight each."""
    return np.where(known, 0.5 / max(known.sum(), 1), 0.5 / max((~known).sum(), 1))


def blended(
    own: tuple[float, float] | None, usual: tuple[float, float], chips: int, prior: float
) -> tuple[float, float]:
    """Blends a task's own sigmoid with the usual one of other tasks, by the number of chips.

    Args:
      own: ``(slope, offset)`` of the task's trials, or None.
      usual: ``(slope, offset)`` of other tasks.
      chips: number of chips to which the own one is fitted.
      prior: number of chips that the usual one counts as.
    """
    if own is None:
        return usual
    share = chips / (chips + prior)
    slope, offset = (share * a + (1 - share) * b for a, b in zip(own, usual, strict=True))
    return slope, offset


def cross_p_values(
    known: Float[np.ndarray, " n"],
    fold: Int[np.ndarray, " n"],
    scores: Float[np.ndarray, "f b"],
) -> Float[np.ndarray, " b"]:
    r"""Computes cross-conformal p-values (Vovk 2015; CV+ of Barber et al. 2021).

    .. math:: p = \frac{1 + \sum_i 1[v_i \le s_{k(i)}]}{n + 1}

    with :math:`v_i` the score of known chip i by the fit without its fold k(i), and :math:`s_k` the
    new chip's score by that fit. Rejecting :math:`p \le \alpha` rejects at most about
    :math:`2 \alpha` of the known chips, whatever the scores; in practice about :math:`\alpha`.

    Args:
      known: ``[n]``, each by the fit without its fold.
      fold: ``[n]``, from 0.
      scores: ``[f, b]``, new chips by the fit without each fold.
    """
    below = np.zeros(scores.shape[1])
    for k, own in enumerate(scores):
        below += np.searchsorted(np.sort(known[fold == k]), own, side="right")
    return (1 + below) / (len(known) + 1)
