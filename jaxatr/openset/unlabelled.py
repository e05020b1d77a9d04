r"""The shift of known scores in the field, estimated from chips without labels.

The scores of unlabelled chips are a mixture. Its known part has the shape of the validation
scores, moved and stretched; its unknown part is a Gaussian lower down:

.. math:: p(v) = (1 - q)\, f\!\left(\frac{v - a}{b}\right) \frac{1}{b} + q\, N(v; c, d^2) .

The maximum of the likelihood, with weak priors, gives all five numbers. The known part alone is
taken if Schwarz's criterion (BIC) prefers it. Where the two parts overlap, they cannot be told
apart, and :func:`fit_mixture` refuses. The form and the priors were chosen on simulated chips and
on MSTAR, the bounds on artificial mixtures (docs/results/decisions.md).
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jaxatr.openset.calibration import unit_of
from jaxatr.openset.conformal import conformal_threshold, examples_needed
from jaxatr.typing import Float

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

FEWEST = 50
"""Least number of unlabelled chips."""

MOST_OVERLAP = 0.2
"""Largest share of unknown chips, as estimated, above the threshold of the known ones."""

MOST_UNKNOWN = 0.9
"""Largest share of unknown chips, as estimated."""

_LEAST_DISTANCE = 2.5  # of the two parts' middles, in spreads: Gaussians overlap by a fifth there
_DOUBT = 2.0  # difference of log-likelihoods up to which another fit is as good
_MOST_APART = 0.15  # largest difference of what two fits as good accept
_GRID = np.linspace(-12, 12, 2401)


class CannotTell(ValueError):
    """The known chips among unlabelled ones cannot be told from the unknown ones."""


class Mixture(NamedTuple):
    """A mixture of known and unknown scores.

    Attributes:
      shift: what is added to the known scores' median, in their spreads
        (:func:`jaxatr.openset.calibration.unit_of`).
      stretch: factor of the known scores' deviations from their median.
      unknown: share of unknown chips, in [0, 1].
      centre: mean of the unknown chips' scores; minus infinity if there are none.
      spread: their standard deviation.
    """

    shift: float
    stretch: float
    unknown: float
    centre: float
    spread: float

    def moved(self, known_scores: ArrayLike) -> Float[np.ndarray, " n"]:
        """Moves and stretches validation scores to those that are expected in the field."""
        known = np.asarray(known_scores, np.float64)
        middle, unit = unit_of(known)
        return middle + unit * self.shift + self.stretch * (known - middle)

    def overlap(self, threshold: float) -> float:
        """Estimates the share of unknown chips with at least this score."""
        if not self.unknown:
            return 0.0
        return math.erfc((threshold - self.centre) / (math.sqrt(2) * self.spread)) / 2


def fit_mixture(known_scores: ArrayLike, scores: ArrayLike, *, tpr: float = 0.95) -> Mixture:
    """Fits the mixture to the scores of unlabelled chips.

    Args:
      known_scores: ``[n]``, scores of known validation examples.
      scores: ``[m]``, scores of the unlabelled chips; infinite and missing ones count as unknown.
      tpr: share of known chips to accept; the refusals depend on it.

    Raises:
      CannotTell: there are too few chips or validation scores, too few known chips, the two parts
        overlap, or unlike mixtures fit equally well; the message says which.
    """
    known, every = np.asarray(known_scores, np.float64), np.asarray(scores, np.float64)
    finite = every[np.isfinite(every)]
    if len(finite) < FEWEST:
        raise CannotTell(f"got {len(finite)} chips with a score, wanted at least {FEWEST}")
    if tpr < 1 and len(known) < examples_needed(tpr):
        raise CannotTell(
            f"got {len(known)} validation scores, wanted at least {examples_needed(tpr)} for a "
            f"threshold that accepts {tpr:.3g}"
        )
    middle, unit = unit_of(known)
    alone, fits = _fits(_log_density((known - middle) / unit), (finite - middle) / unit)
    if alone.fun < fits[0].fun + 1.5 * np.log(len(finite)):  # three more parameters: no gain
        return Mixture(float(alone.x[0]), float(np.exp(alone.x[1])), 0.0, -np.inf, 0.0)
    mixtures = [
        Mixture(
            shift=float(one.x[0]),
            stretch=float(np.exp(one.x[1])),
            unknown=float(1 / (1 + np.exp(-one.x[2]))),
            centre=middle + unit * float(one.x[0] - np.exp(one.x[3])),
            spread=unit * float(np.exp(one.x[4])),
        )
        for one in fits
        if one.fun < fits[0].fun + _DOUBT
    ]
    best = mixtures[0]
    thresholds = [conformal_threshold(one.moved(known), tpr=tpr) for one in mixtures]
    accepted = [np.mean(finite >= threshold) for threshold in thresholds]
    if np.ptp(accepted) > _MOST_APART:
        raise CannotTell(
            f"unlike mixtures fit equally well, which accept {min(accepted):.0%} and "
            f"{max(accepted):.0%} of the chips"
        )
    if best.unknown > MOST_UNKNOWN:
        raise CannotTell(f"about {best.unknown:.0%} of the chips seem to be unknown")
    if best.overlap(thresholds[0]) > MOST_OVERLAP:
        raise CannotTell(
            f"known and unknown scores overlap: about {best.overlap(thresholds[0]):.0%} of the "
            "unknown chips seem to score as high as known ones"
        )
    return best


def _log_density(known: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    """Estimates the logarithm of the density of standardised scores, with heavy tails."""
    width = 0.9 * min(float(known.std()), 1.0) * len(known) ** -0.2 or 1.0  # Silverman's
    density = np.exp(_log_gaussian(_GRID[:, None] - known, width)).mean(axis=1)
    tails = 2 / (np.pi * np.sqrt(3) * 1.5) / (1 + (_GRID / 1.5) ** 2 / 3) ** 2  # Student's, of 3
    return np.log(0.95 * density + 0.05 * tails)


def _log_gaussian(deviations: np.ndarray, spread: float) -> np.ndarray:
    return -((deviations / spread) ** 2) / 2 - math.log(spread * math.sqrt(2 * math.pi))


def _fits(
    shape: Float[np.ndarray, " g"], scores: Float[np.ndarray, " m"]
) -> tuple["OptimizeResult", list["OptimizeResult"]]:
    """Fits the known part alone, and the mixture from several starts, of which the best is first.

    The parameters are the shift, the logarithm of the stretch, the log odds of unknown, and the
    logarithms of the distance and the spread of the unknown part.
    """

    from scipy import optimize  # slow to import

    def known(shift: float, stretch: float) -> tuple[np.ndarray, float]:
        prior = (shift / 2) ** 2 + ((stretch - 0.2) / 0.3) ** 2
        return np.interp((scores - shift) / np.exp(stretch), _GRID, shape) - stretch, prior

    def loss_alone(parameters: np.ndarray) -> float:
        own, prior = known(*parameters)
        return float(prior / 2 - own.sum())

    def loss(parameters: np.ndarray) -> float:
        shift, stretch, odds, distance, spread = parameters
        own, prior = known(shift, stretch)
        other = _log_gaussian(scores - shift + math.exp(distance), math.exp(spread))
        both = np.logaddexp(own - np.logaddexp(0, odds), other - np.logaddexp(0, -odds))
        prior += (odds / 2) ** 2 + ((distance - np.log(4)) / 0.5) ** 2
        prior += ((spread - np.log(1.5)) / 0.4) ** 2
        return float(prior / 2 - both.sum())

    bounds = [(-6, 2), (-0.5, 1), (-5, 5), (np.log(_LEAST_DISTANCE), np.log(12)), (-0.7, 1.4)]
    starts = [(shift, 0.2, odds, np.log(4), np.log(1.5)) for shift in (0, -2) for odds in (-2, 1)]
    found = [optimize.minimize(loss, start, bounds=bounds) for start in starts]
    alone = [optimize.minimize(loss_alone, (shift, 0.2), bounds=bounds[:2]) for shift in (0, -2)]
    return min(alone, key=_loss_of), sorted(found, key=_loss_of)


def _loss_of(fit: "OptimizeResult") -> float:
    return fit.fun
