"""Metrics of calibration and selective prediction."""

from typing import NamedTuple

import chex
import numpy as np
from numpy.typing import ArrayLike


class Reliability(NamedTuple):
    """A reliability diagram: examples binned by probability, with bins of equal width.

    Attributes:
      probability: ``[b]``, mean probability of each bin's examples; NaN for an empty bin.
      share: ``[b]``, share of each bin's events that occurred; NaN for an empty bin.
      weight: ``[b]``, each bin's share of all examples; they sum to 1.
    """

    probability: np.ndarray
    share: np.ndarray
    weight: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the weighted mean gap between share and probability."""
        filled = self.weight > 0
        return float(np.sum((self.weight * np.abs(self.share - self.probability))[filled]))


def reliability(
    probabilities: ArrayLike,
    came_true: ArrayLike,
    *,
    bins: int = 15,
    weights: ArrayLike | None = None,
) -> Reliability:
    """Computes a reliability diagram (Guo et al. 2017, section 2).

    Args:
      probabilities: ``[n]``, in [0, 1].
      came_true: ``[n]``, whether each event occurred.
      bins: number of bins of equal width; a probability on an edge belongs to the lower bin.
      weights: ``[n]``, weights of the examples, each 0 or more; equal by default.

    Raises:
      ValueError: there is no example, a probability is outside [0, 1], there are no bins, or the
        weights are negative, not finite, or all 0.

    >>> reliability([0.9, 0.9, 0.1, 0.1], [True, False, False, False], bins=2).error
    0.25
    """
    values, hits = np.asarray(probabilities, np.float64), np.asarray(came_true, bool)
    chex.assert_rank(values, 1)
    chex.assert_equal_shape([values, hits])
    if not values.size:
        raise ValueError("probabilities: got none, wanted [n] with n > 0")
    if len(outside := values[~((values >= 0) & (values <= 1))]):
        raise ValueError(f"probabilities: got {outside[0]}, wanted values in [0, 1]")
    if bins < 1:
        raise ValueError(f"bins: got {bins}, wanted at least 1")
    shares = np.ones_like(values) if weights is None else np.asarray(weights, np.float64)
    chex.assert_equal_shape([values, shares])
    total, least = shares.sum(), shares.min()
    if not (least >= 0 and 0 < total < np.inf):
        raise ValueError(
            f"weights: got the minimum {least} and the sum {total}, wanted finite numbers of at "
            "least 0 with a positive sum"
        )
    place = np.searchsorted(np.arange(1, bins) / bins, values, "left")
    weight = np.bincount(place, shares, bins)
    with np.errstate(invalid="ignore"):
        probability = np.bincount(place, shares * values, bins) / weight
        share = np.bincount(place, shares * hits, bins) / weight
    return Reliability(probability, share, weight / total)


def expected_calibration_error(
    probabilities: ArrayLike, came_true: ArrayLike, *, bins: int = 15
) -> float:
    """Computes the expected calibration error (Naeini et al. 2015).

    It is the mean gap between probability and observed share over bins of equal width, weighted by
    the number of examples (:func:`reliability`).

    Args:
      probabilities: ``[n]``, in [0, 1].
      came_true: ``[n]``, whether each event occurred.
      bins: number of bins of equal width.

    Raises:
      ValueError: there is no example, a probability is outside [0, 1], or there are no bins.
    """
    return reliability(probabilities, came_true, bins=bins).error


def risk_coverage(confidence: ArrayLike, correct: ArrayLike) -> np.ndarray:
    """Computes the risk-coverage curve (Geifman and El-Yaniv 2017), ``[n]``.

    Element i is the share of wrong answers among the ``i + 1`` most confident ones. Tied
    confidences are averaged over their possible orders.

    Args:
      confidence: ``[n]``, higher is more confident.
      correct: ``[n]``, whether each answer is correct.

    Raises:
      ValueError: there is no example, or a confidence is NaN.

    >>> risk_coverage([3.0, 2.0, 1.0, 1.0], [True, False, True, False]).tolist()
    [0.0, 0.5, 0.5, 0.5]
    """
    values, wrong = np.asarray(confidence, np.float64), ~np.asarray(correct, bool)
    chex.assert_rank(values, 1)
    chex.assert_equal_shape([values, wrong])
    if not values.size:
        raise ValueError("confidence: got none, wanted [n] with n > 0")
    if np.isnan(values).any():
        raise ValueError(f"confidence: {np.isnan(values).sum()} of {values.size} are NaN")
    _, group, sizes = np.unique(-values, return_inverse=True, return_counts=True)
    share = np.bincount(group, wrong) / sizes  # of wrong answers in each group of ties
    return np.cumsum(np.repeat(share, sizes)) / np.arange(1, len(values) + 1)


def aurc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Computes the area under the risk-coverage curve (Geifman et al. 2019).

    It is the mean risk over all coverages. Lower is better.

    Args:
      confidence: ``[n]``, higher is more confident.
      correct: ``[n]``, whether each answer is correct.

    Raises:
      ValueError: there is no example, or a confidence is NaN.

    >>> aurc([2.0, 1.0], [True, False])
    0.25
    """
    return float(np.mean(risk_coverage(confidence, correct)))
