r"""Rules that decide by several scores ("members") at once. Arrays in, arrays out.

A rule is fitted to known chips that took no part in the fit of its members (the *calibration*
chips, ``[n, m]``) and gives every chip ``[b, m]`` one score; higher is more known.

Each member is standardised by the median and the spread of the calibration chips. The sum rule is
the mean of the members, each bounded. The power mean combines *shortfalls*, how far the chip lies
below a usual known chip,

.. math:: d_j = \max\!\left(0, \frac{\operatorname{median}_j - s_j}{\operatorname{spread}_j}\right)

and the shortfalls are combined by a mean of power p,
:math:`-\left(\frac1m \sum_j w_j \min(d_j, c)^p\right)^{1/p}`. With p = 1
this is the sum rule on what speaks against a chip, with infinite p the smallest standardised
member; p = 2 is close to Fisher's sum of log p-values of Gaussian members. The cap c bounds what a
single member can say.
"""

from typing import NamedTuple

import numpy as np

from experiments.decisions import package
from jaxatr import metrics
from jaxatr.typing import Float

_LEAST = 1e-9


class Unit(NamedTuple):
    """The usual value and the spread of members on known chips.

    Attributes:
      middle: ``[m]``.
      spread: ``[m]``, positive.
    """

    middle: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]


def unit_of(values: Float[np.ndarray, "n m"]) -> Unit:
    """Computes the median and the spread of members on calibration chips, as the package does.

    Args:
      values: ``[n, m]``, n > 0.
    """
    middle, spread = zip(*map(package.unit_of, values.T), strict=True)
    return Unit(np.array(middle), np.array(spread))


def standardised(unit: Unit, values: Float[np.ndarray, "b m"]) -> Float[np.ndarray, "b m"]:
    """Expresses members in units of known chips."""
    return (values - unit.middle) / unit.spread


def power_mean(
    z: Float[np.ndarray, "b m"],
    *,
    power: float,
    cap: float = np.inf,
    weights: Float[np.ndarray, " m"] | None = None,
) -> Float[np.ndarray, " b"]:
    """Combines standardised members by the power mean of their shortfalls.

    Chips above the median in every member are ordered by the mean of the members, bounded so that
    none of them falls below a chip with a shortfall.

    Args:
      z: ``[b, m]``, from :func:`standardised`.
      power: p, at least 1; infinite for the smallest member.
      cap: c, the largest shortfall of a member that counts.
      weights: ``[m]``, summing to 1; equal by default.
    """
    short = np.minimum(np.maximum(-z, 0), cap)
    # Beyond the cap the order of chips is kept, at a thousandth of the weight.
    short = short + 1e-3 * np.log1p(np.maximum(-z, 0) - short)
    shares = np.full(z.shape[1], 1 / z.shape[1]) if weights is None else weights
    if np.isinf(power):
        combined = np.max(np.where(shares > 0, short, 0), axis=1)
    else:
        largest = np.maximum(short.max(axis=1, keepdims=True), _LEAST)
        combined = largest[:, 0] * np.sum(shares * (short / largest) ** power, axis=1) ** (
            1 / power
        )
    above = np.tanh(np.mean(np.maximum(z, 0), axis=1))
    return -combined + 1e-3 * above


def mean(
    z: Float[np.ndarray, "b m"],
    cap: float = np.inf,
    weights: Float[np.ndarray, " m"] | None = None,
) -> Float[np.ndarray, " b"]:
    """Combines standardised members by the sum rule: their mean, each bounded by ± the cap.

    Beyond the cap the order of chips is kept, at a thousandth of the weight.

    Args:
      z: ``[b, m]``, from :func:`standardised`.
      cap: the largest distance from the median that counts.
      weights: ``[m]``, summing to 1; equal by default.
    """
    shares = np.full(z.shape[1], 1 / z.shape[1]) if weights is None else weights
    bounded = np.clip(z, -cap, cap)
    beyond = z - bounded
    return (bounded + 1e-3 * np.sign(beyond) * np.log1p(np.abs(beyond))) @ shares


def bent(
    z: Float[np.ndarray, "b m"], weights: Float[np.ndarray, " m"] | None = None
) -> Float[np.ndarray, " b"]:
    """Combines standardised members as the package's default rule, bent from three spreads on.

    Args:
      z: ``[b, m]``, from :func:`standardised`.
      weights: ``[m]``; equal by default.
    """
    shares = np.full(z.shape[1], 1 / z.shape[1]) if weights is None else weights
    return np.arcsinh(z / 3) @ shares


class Trial(NamedTuple):
    """Members of a network that has not seen some known classes.

    Attributes:
      known: ``[a, m]``, of chips of classes that it has seen, not used in its training.
      unknown: ``[b, m]``, of chips of classes that it has not seen.
    """

    known: Float[np.ndarray, "a m"]
    unknown: Float[np.ndarray, "b m"]


def trial_area(score, trial: Trial) -> float:
    """Computes the AUROC of a rule in a trial; its unit is that of the trial's known chips."""
    unit = unit_of(trial.known)
    return metrics.auroc(
        score(standardised(unit, trial.known)), score(standardised(unit, trial.unknown))
    )
