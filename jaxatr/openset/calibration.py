"""Thresholds and probabilities that are fitted to scores of known examples.

The thresholds are those of a conformal test (:mod:`~jaxatr.openset.conformal`), the probabilities
of the classes have a temperature, and that of "known" is a sigmoid of the score.
"""

import math
from typing import NamedTuple

import chex
import numpy as np
from numpy.typing import ArrayLike

from jaxatr.openset.conformal import (
    class_thresholds,
    conformal_p_values,
    conformal_rank,
    conformal_threshold,
    promised,
    rank_below,
)
from jaxatr.openset.inputs import as_classes, as_numpy, known_labels
from jaxatr.openset.logistic import sigmoid, softmax
from jaxatr.typing import Bool, Float, Int

_HALVINGS = 80
_SPREAD = 0.1  # of log T about that of other examples; chosen on simulated chips with boxes off
_LARGEST = math.log(1e4)  # log of the largest temperature; the smallest is its reciprocal


def fit_temperature(logits: ArrayLike, labels: ArrayLike, *, before: float | None = None) -> float:
    r"""Fits the temperature that calibrates a classifier's probabilities.

    Guo et al. (2017), "On Calibration of Modern Neural Networks", section 4.2: T minimises the
    cross-entropy of ``softmax(logits / T)``. The targets are smoothed, so that a few examples that
    are all correct do not drive T to 0: :math:`(n + 1) / (n + 2)` goes to the true class, and the
    rest is spread evenly over all classes, as Platt (1999) does for two.

    A temperature that was fitted before to other examples of the classifier takes the place of the
    smoothing: T departs from it as far as the examples support, with a Gaussian prior of
    :math:`\log T` whose standard deviation is 0.1. With 5 to 20 chips of a class from elsewhere,
    this calibrates better than a fit to them alone (docs/results/decisions.md).

    Args:
      logits: ``[n, k]``, of examples that took no part in training.
      labels: ``[n]``, their classes.
      before: the temperature that was fitted before; None for none.

    Returns:
      T, between 1e-4 and 1e4. If it has no effect, because there is only one class or the logits of
      each example are all equal, ``before``, or 1 without it.

    Raises:
      ValueError: there is no example, a logit is not finite, or a label is not a class.
    """
    logits = as_numpy(logits, np.float64)
    chex.assert_rank(logits, 2)
    if not len(logits) or not np.isfinite(logits).all():
        raise ValueError(f"logits: got shape {logits.shape}, wanted finite ones of n > 0 examples")
    labels = known_labels(labels, *logits.shape)
    mean = logits.mean(axis=1)
    if not np.ptp(logits, axis=1).any():
        return 1.0 if before is None else before
    sure = 1 - 1 / (len(logits) + 2) if before is None else 1.0
    wanted = np.mean(sure * logits[np.arange(len(labels)), labels] + (1 - sure) * mean)

    def slope(inverse: float) -> float:
        """Computes the derivative of the cross-entropy with respect to 1 / T; it is increasing."""
        shares = softmax(logits * inverse)
        return float(np.mean(np.sum(shares * logits, axis=1)) - wanted)

    def rises(log: float) -> bool:
        """Returns whether the loss rises with log(1 / T)."""
        inverse = float(np.exp(log))
        if before is None:
            return slope(inverse) > 0
        return len(logits) * inverse * slope(inverse) + (log + math.log(before)) / _SPREAD**2 > 0

    low, high = -_LARGEST, _LARGEST  # of log(1 / T)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if rises(middle) else (middle, high)
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
        return sigmoid(self.slope * as_numpy(standing, np.float64) + self.offset)


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
    z, known = as_numpy(standing, np.float64), as_numpy(known, bool)
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
    known = as_numpy(known_scores, np.float64)
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
    return (as_numpy(scores, np.float64) - middle) / spread


class Calibration(NamedTuple):
    """A score's calibration on known examples.

    Attributes:
      scores: ``[n]``, scores of the examples: first those that took no part in training, then any
        others as if not seen (:mod:`jaxatr.openset.unseen`): training examples, or, if the first
        are of another place than the training, the examples of the calibration before.
      nearest: ``[n]``, the class that each is assigned to.
      temperature: temperature of the class probabilities.
      tpr: share of known examples to accept.
      per_class: whether ``tpr`` holds for each assigned class separately.
      sigmoid: maps a standardised score to the probability of being known; None if none could be
        fitted.
      unseen: number of examples that took no part in training. None for the calibrations of earlier
        versions: all took no part, and with too few of them everything is accepted.
      folds: number of networks, each of which has not seen some of the examples; 0 if one network
        has seen none of them.
    """

    scores: Float[np.ndarray, " n"]
    nearest: Int[np.ndarray, " n"]
    temperature: float = 1.0
    tpr: float = 0.95
    per_class: bool = False
    sigmoid: Sigmoid | None = None
    unseen: int | None = None
    folds: int = 0

    @property
    def held_out(self) -> int:
        """The number of examples that took no part in training."""
        return len(self.scores) if self.unseen is None else self.unseen

    @property
    def pooled(self) -> bool:
        """Whether there are training examples among the examples."""
        return self.held_out < len(self.scores)

    @property
    def reference(self) -> Float[np.ndarray, " n"]:
        """``[n]``, the scores that new ones are compared with, lowered to keep the guarantee."""
        if not self.pooled or not self.unseen:
            return self.scores
        return promised(self.scores, self.unseen, tpr=self.tpr)

    def compared(self, label: int) -> Bool[np.ndarray, " n"]:
        """Returns the examples with which those that are assigned to a class are compared.

        With ``per_class`` they are those assigned to the class, unless they are too few for the
        rate; in calibrations of earlier versions, even then.
        """
        own = self.nearest == label
        if self.unseen is not None and not conformal_rank(int(own.sum()), tpr=self.tpr):
            return np.ones_like(own)
        return own if self.per_class else np.ones_like(own)

    @property
    def threshold(self) -> float:
        """The threshold of all examples together; a score equal to it is accepted."""
        least = 0 if self.unseen is None else 1
        return conformal_threshold(self.reference, tpr=self.tpr, least=least)

    def thresholds(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Computes the threshold of each class.

        With ``per_class``, a class with too few examples for the rate has the threshold of all
        examples together; in calibrations of earlier versions, minus infinity.
        """
        if not self.per_class:
            return np.full(num_classes, self.threshold)
        own = class_thresholds(self.reference, self.nearest, num_classes, tpr=self.tpr)
        return own if self.unseen is None else np.where(np.isfinite(own), own, self.threshold)

    def guarantees(self, num_classes: int) -> Float[np.ndarray, " k"]:
        """Computes the smallest probability with which a known example of each class is accepted.

        It holds for examples that are exchangeable with those that took no part in training; with
        ``per_class``, for those that are assigned to the class. NaN for a class without a
        guarantee: with ``per_class``, one with too few examples, or with training examples; any
        class if the examples are of several folds.
        """
        if self.tpr == 1:
            return np.ones(num_classes)
        if self.folds:
            return np.full(num_classes, np.nan)
        if not self.per_class:
            count = self.held_out
            rank = conformal_rank(count, tpr=self.tpr, least=0 if self.unseen is None else 1)
            if self.pooled:
                rank = rank_below(count, tpr=self.tpr)
            return np.full(num_classes, 1 - rank / (count + 1) if count else np.nan)
        if self.pooled:
            return np.full(num_classes, np.nan)
        counts = [int(np.sum(self.nearest == c)) for c in range(num_classes)]
        ranks = [conformal_rank(count, tpr=self.tpr) for count in counts]
        return np.array(
            [
                np.nan if not rank and self.unseen is not None else 1 - rank / (count + 1)
                for rank, count in zip(ranks, counts, strict=True)
            ]
        )

    def guarantee(self, num_classes: int) -> float | None:
        """Returns the smallest of the classes' guarantees; None if one of them has none."""
        least = float(np.min(self.guarantees(num_classes)))
        return None if math.isnan(least) else least

    @property
    def basis(self) -> str:
        """The examples that the thresholds were fitted to, in words."""
        if self.unseen == 0:  # see jaxatr.openset.unlabelled: their scores are estimates
            return f"{_counted(len(self.scores))}, shifted to chips without labels"
        if self.folds:
            return f"{len(self.scores)} examples, each unseen by one of {self.folds} trainings"
        plain, more = _counted(self.held_out), len(self.scores) - self.held_out
        return f"{plain} and {more} others as if not seen" if more else plain

    def p_values(self, scores: ArrayLike, nearest: ArrayLike | None = None) -> np.ndarray:
        """Computes the conformal p-values ``[m]`` of new scores.

        They are among the examples to which the threshold was fitted, so that an example is
        accepted if its p-value exceeds ``1 - tpr``.

        Args:
          scores: ``[m]``.
          nearest: ``[m]``, the class that each example is assigned to; needed with ``per_class``.
        """
        values = as_numpy(scores, np.float64)
        reference, classes = self.reference, _assigned(self, nearest)
        p_values = conformal_p_values(reference, values)
        for label in np.unique(classes).tolist() if self.per_class else ():
            chosen = classes == label
            p_values[chosen] = conformal_p_values(reference[self.compared(label)], values[chosen])
        return p_values

    def accepts(self, scores: ArrayLike, nearest: ArrayLike | None = None) -> np.ndarray:
        """Returns which examples are accepted as known, ``[m]``.

        The arguments are those of :meth:`p_values`. A score that is NaN is rejected.
        """
        values, classes = as_numpy(scores, np.float64), _assigned(self, nearest)
        if not self.per_class:
            return values >= self.threshold
        # One more, so that an example of no class, -1, is compared with all, as its p-value is.
        count = 2 + max(classes.max(initial=-1), self.nearest.max(initial=-1))
        return values >= self.thresholds(int(count))[classes]

    def known_probabilities(
        self, scores: ArrayLike, p_values: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Computes the probabilities of being known, ``[m]``; ``p_values`` without a sigmoid."""
        if self.sigmoid is None:
            return p_values
        return self.sigmoid(standing_of(scores, self.scores))


def _counted(examples: int) -> str:
    return f"{examples} validation example{'s' if examples != 1 else ''}"


def _assigned(calibration: Calibration, nearest: ArrayLike | None) -> Int[np.ndarray, " m"]:
    if nearest is None and calibration.per_class:
        raise ValueError("nearest: got none, wanted the class that each example is assigned to")
    return np.zeros(0, int) if nearest is None else as_classes("nearest", nearest)


def fit_calibration(
    scores: ArrayLike,
    nearest: ArrayLike | None = None,
    *,
    tpr: float = 0.95,
    per_class: bool = False,
    sigmoid: Sigmoid | None = None,
    logits: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    before: float | None = None,
) -> Calibration:
    """Fits thresholds to the scores of known examples, and a temperature to their logits.

    With too few examples for the rate, the threshold is the lowest score, whose guarantee is lower
    (:meth:`Calibration.guarantee`).

    >>> calibration = fit_calibration([0.3, 0.1, 0.4, 0.2], tpr=0.6)
    >>> calibration.threshold, calibration.accepts([0.1, 0.2]).tolist()
    (0.2, [False, True])

    Args:
      scores: ``[n]``, of examples that took no part in training.
      nearest: ``[n]``, the class that each is assigned to; needed for ``per_class``.
      tpr: share of known examples to accept, in (0, 1].
      per_class: fit a threshold for each assigned class instead of a common one.
      sigmoid: from :func:`fit_sigmoid`.
      logits: ``[m, k]``, for the temperature of the class probabilities; None for 1.
      labels: ``[m]``, the classes of the examples of the logits.
      before: temperature that was fitted before to other examples (:func:`fit_temperature`).

    Raises:
      ValueError: there is no score, one is not finite, or ``tpr`` is out of range.
    """
    values = as_numpy(scores, np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"{np.sum(~np.isfinite(values))} scores are not finite" if values.size else "no scores"
        )
    conformal_threshold(values, tpr=tpr)  # checks tpr
    if per_class and nearest is None:
        raise ValueError("nearest: got none, wanted the class that each example is assigned to")
    classes = np.zeros(values.shape, int) if nearest is None else as_classes("nearest", nearest)
    temperature = 1.0
    if logits is not None:
        if labels is None:
            raise ValueError("labels: got none, wanted those of the examples of the logits")
        temperature = fit_temperature(logits, labels, before=before)
    # Copies: the caller may fill the arrays anew.
    kept = values.copy(), classes.copy()
    return Calibration(*kept, temperature, tpr, per_class, sigmoid, len(values))
