"""Calibrated probabilities: those of the classes by a temperature, that of "known" by a sigmoid."""

from typing import NamedTuple

import chex
import numpy as np
from numpy.typing import ArrayLike

from jaxatr.openset.inputs import known_labels
from jaxatr.openset.logistic import sigmoid, softmax
from jaxatr.typing import Float

_HALVINGS = 80
_LARGEST = np.log(1e4)  # log of the largest temperature; the smallest is its reciprocal


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    r"""Fits the temperature that calibrates a classifier's probabilities.

    Guo et al. (2017), "On Calibration of Modern Neural Networks", section 4.2: T minimises the
    cross-entropy of ``softmax(logits / T)``. The targets are smoothed, so that a few examples that
    are all correct do not drive T to 0: :math:`(n + 1) / (n + 2)` goes to the true class, and the
    rest is spread evenly over all classes, as Platt (1999) does for two.

    Args:
      logits: ``[n, k]``, of examples that took no part in training.
      labels: ``[n]``, their classes.

    Returns:
      T, between 1e-4 and 1e4; 1 if it has no effect, because there is only one class or the logits
      of each example are all equal.

    Raises:
      ValueError: there is no example, a logit is not finite, or a label is not a class.
    """
    logits = np.asarray(logits, np.float64)
    chex.assert_rank(logits, 2)
    if not len(logits) or not np.isfinite(logits).all():
        raise ValueError(f"logits: got shape {logits.shape}, wanted finite ones of n > 0 examples")
    labels = known_labels(np.asarray(labels), *logits.shape)
    mean = logits.mean(axis=1)
    if not np.ptp(logits, axis=1).any():
        return 1.0
    sure = 1 - 1 / (len(logits) + 2)
    wanted = np.mean(sure * logits[np.arange(len(labels)), labels] + (1 - sure) * mean)

    def slope(inverse: float) -> float:
        """Computes the derivative of the cross-entropy with respect to 1 / T; it is increasing."""
        shares = softmax(logits * inverse)
        return float(np.mean(np.sum(shares * logits, axis=1)) - wanted)

    low, high = -_LARGEST, _LARGEST  # of log(1 / T)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(np.exp(middle)) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


class Sigmoid(NamedTuple):
    """The probability of being known as a function of a score.

    Attributes:
      slope: slope a of the logit ``a * z + b``, with z the score standardised by
        :func:`standing_of`.
      offset: offset b of the logit.
    """

    slope: float
    offset: float

    def __call__(self, standing: ArrayLike) -> Float[np.ndarray, " n"]:
        """Computes the probabilities ``[n]`` of examples with these standardised scores."""
        return sigmoid(self.slope * np.asarray(standing, np.float64) + self.offset)


def fit_sigmoid(standing: ArrayLike, known: ArrayLike) -> Sigmoid | None:
    """Fits the probability of being known, at even odds (Platt 1999; Lin et al. 2007).

    Args:
      standing: ``[n]``, scores of known and unknown examples, standardised by :func:`standing_of`.
      known: ``[n]``, whether each example is known. Known and unknown examples have the same total
        weight, regardless of their numbers.

    Returns:
      The sigmoid; None if a higher score does not make "known" more likely, or if either kind is
      missing.
    """
    z, known = np.asarray(standing, np.float64), np.asarray(known, bool)
    chex.assert_equal_shape([z, known])
    counts = np.array([(~known).sum(), known.sum()])
    if not counts.all():
        return None
    # Targets other than 0 and 1 keep the fit finite if the scores of the two kinds do not overlap.
    targets = np.where(known, 1 - 1 / (counts[1] + 2), 1 / (counts[0] + 2))
    weights = 0.5 / counts[known.astype(int)]
    design = np.stack([z, np.ones_like(z)], axis=1)

    def loss(coefficients: np.ndarray) -> float:
        logits = design @ coefficients
        return float(np.sum(weights * (np.logaddexp(0, logits) - targets * logits)))

    found = np.zeros(2)
    for _ in range(100):
        shares = sigmoid(design @ found)
        gradient = design.T @ (weights * (shares - targets))
        curvature = (design * (weights * shares * (1 - shares))[:, None]).T @ design
        step = np.linalg.solve(curvature + 1e-12 * np.eye(2), gradient)
        size = 1.0
        while size > 1e-10 and loss(found - size * step) > loss(found):
            size /= 2
        found = found - size * step
        if np.abs(size * step).max() < 1e-9:
            break
    return Sigmoid(float(found[0]), float(found[1])) if found[0] > 1e-6 else None


def unit_of(known_scores: ArrayLike) -> tuple[float, float]:
    """Computes the median and the spread of known examples' scores.

    The spread is the median absolute deviation times 1.4826, which estimates a Gaussian's standard
    deviation. If more than half of the scores are equal, it is the standard deviation; if all are
    equal, 1.

    Args:
      known_scores: ``[n]``, scores of known examples that were not used to fit the score.

    Raises:
      ValueError: there is no known example.
    """
    known = np.asarray(known_scores, np.float64)
    if not known.size:
        raise ValueError("known_scores: got none, wanted [n] with n > 0")
    middle = np.median(known)
    if not np.ptp(known):  # their computed deviation may be a rounding error instead of 0
        return float(middle), 1.0
    spread = 1.4826 * np.median(np.abs(known - middle)) or np.std(known)
    return float(middle), float(spread)


def standing_of(scores: ArrayLike, known_scores: ArrayLike) -> Float[np.ndarray, " m"]:
    """Standardises scores by the median and the spread of known examples' scores.

    Args:
      scores: ``[m]``.
      known_scores: ``[n]``, scores of known examples that were not used to fit the score.

    Raises:
      ValueError: there is no known example.
    """
    middle, spread = unit_of(known_scores)
    return (np.asarray(scores, np.float64) - middle) / spread
