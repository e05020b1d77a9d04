"""Axes of charts, each linear in its own coordinate, which need not be what it is marked in."""

import math
from typing import NamedTuple

import numpy as np
import scipy.special

from jaxatr.openset import Scale
from jaxatr.typing import Float, Shaped

_PROBABILITIES = (0.5, 0.9, 0.1, 0.99, 0.01, 0.999, 0.001, *(1 - 10.0**-n for n in range(4, 13)))
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_FURTHEST = 27.0  # as a logit; float64 still tells a probability of 1 - 1e-12 from 1


class Axis(NamedTuple):
    """The span of a chart in one direction.

    Attributes:
      label: says what is shown, and its unit.
      low, high: the ends.
      ticks: where it is marked, and with what.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Returns where values lie: 0 at the low end, 1 at the high one."""
        return (values - self.low) / (self.high - self.low)


def linear(label: str, low: float, high: float) -> Axis:
    """Returns an axis with about five round marks."""
    if not high > low:
        low, high = low - 0.5, low + 0.5
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    marks = step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return Axis(label, low, high, tuple((float(mark), f"{mark:.6g}") for mark in marks))


def percent(label: str, low: float = 0.0, high: float = 1.0) -> Axis:
    """Returns an axis for shares, marked in percent."""
    axis = linear(label, 100 * low, 100 * high)
    ticks = tuple((mark / 100, text) for mark, text in axis.ticks)
    return Axis(f"{label} (%)", low, high, ticks)


def logarithmic(label: str, low: float, high: float) -> Axis:
    """Returns an axis for the decimal logarithm of positive values from ``low`` to ``high``."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    powers = range(first, last + 1, math.ceil((last - first) / 6))
    return Axis(label, first, last, tuple((float(n), f"{10.0**n:g}") for n in powers))


def score_axis(scale: Scale, values: Float[np.ndarray, " n"], thresholds: list[float]) -> Axis:
    """Returns an axis that shows a score's values and its thresholds.

    One value in 200 may lie beyond either end, so that a few far ones do not press the others
    together. A probability is laid out by its logit, since most of what matters is next to 1.

    Args:
      scale: of the score.
      values: ``[n]``, by :func:`to_axis`.
      thresholds: that must be on it, by :func:`to_axis`.
    """
    low, high = np.quantile(values, [0.005, 0.995])
    low, high = min([low, *thresholds]), max([high, *thresholds])
    margin = 0.04 * (high - low) or 0.5
    low, high = float(low - margin), float(high + margin)
    if scale == "plain":
        return linear("score", low, high)
    if scale == "distance":
        return linear("distance to the nearest training chip", max(low, 0.0), high)
    low, high = max(low, -_FURTHEST), min(high, _FURTHEST)
    return Axis("probability of being known", low, high, _probability_ticks(low, high))


def to_axis(scale: Scale, scores: Shaped[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Returns where scores lie on their axis: logits of probabilities, distances."""
    values = np.asarray(scores, np.float64)
    if scale == "distance":
        return -values
    if scale == "log":
        with np.errstate(divide="ignore"):  # a probability of 1, which belongs at the far end
            values = values - np.log(-np.expm1(values))
    return values if scale == "plain" else np.clip(values, -_FURTHEST, _FURTHEST)


def to_gamma(scale: Scale, threshold: float) -> float:
    """Returns a threshold in the unit that a reader knows: probability, distance or the score's."""
    if scale == "distance":
        return 0.0 - threshold  # no minus sign before a distance of 0
    if scale == "log":
        return math.exp(threshold)
    return float(scipy.special.expit(threshold)) if scale == "logit" else threshold


def _probability_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Returns marks that keep their distance, the round ones first."""
    apart, chosen = (high - low) / 6, {}
    for probability in _PROBABILITIES:
        mark = float(scipy.special.logit(probability))
        if low <= mark <= high and all(abs(mark - other) >= apart for other in chosen):
            digits = str(round(-math.log10(1 - probability))).translate(_SUPERSCRIPTS)
            chosen[mark] = f"1−10⁻{digits}" if probability > 0.99999 - 1e-9 else f"{probability:g}"
    return tuple(sorted(chosen.items()))
