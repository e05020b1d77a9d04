"""Axes of charts; tick labels may be in another unit than the axis' linear coordinate."""

import math
from typing import NamedTuple

import numpy as np

from jaxatr.openset import Scale
from jaxatr.openset.logistic import logit, sigmoid
from jaxatr.typing import Float, Shaped

_PROBABILITIES = (0.5, 0.9, 0.1, 0.99, 0.01, 0.999, 0.001, *(1 - 10.0**-n for n in range(4, 13)))
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_FURTHEST = 27.0  # a logit; float64 still distinguishes its probability, 1 - 2e-12, from 1


class Axis(NamedTuple):
    """An axis of a chart.

    Attributes:
      label: the quantity and its unit.
      low, high: the ends, in the axis' coordinate.
      ticks: coordinate and text of each tick.
    """

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def place(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Scales values to the axis: 0 at the low end, 1 at the high end."""
        return (values - self.low) / (self.high - self.low)


def linear(label: str, low: float, high: float) -> Axis:
    """Makes a linear axis with about five ticks at round values."""
    if not high > low:
        low, high = low - 0.5, low + 0.5
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    marks = step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return Axis(label, low, high, tuple((float(mark), f"{mark:.6g}") for mark in marks))


def percent(label: str, low: float = 0.0, high: float = 1.0) -> Axis:
    """Makes an axis for shares, labelled in percent."""
    axis = linear(label, 100 * low, 100 * high)
    ticks = tuple((mark / 100, text) for mark, text in axis.ticks)
    return Axis(f"{label} (%)", low, high, ticks)


def logarithmic(label: str, low: float, high: float) -> Axis:
    """Makes an axis for the decimal logarithm of positive values from ``low`` to ``high``."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    powers = range(first, last + 1, math.ceil((last - first) / 6))
    return Axis(label, first, last, tuple((float(n), f"{10.0**n:g}") for n in powers))


def score_axis(scale: Scale, values: Float[np.ndarray, " n"], thresholds: list[float]) -> Axis:
    """Makes an axis for a score's values and its thresholds.

    One value in 200 may lie beyond either end, so that a few outliers do not compress the others.
    The coordinate of a probability is its logit, because most values of interest are close to 1.

    Args:
      scale: scale of the score.
      values: ``[n]``, coordinates by :func:`to_axis`.
      thresholds: coordinates by :func:`to_axis` that must be on the axis.
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
    """Converts scores to coordinates of their axis: logits of probabilities, or distances."""
    values = np.asarray(scores, np.float64)
    if scale == "distance":
        return -values
    if scale == "log":
        with np.errstate(divide="ignore"):  # a probability of 1 is clipped to the far end
            values = values - np.log(-np.expm1(values))
    return values if scale == "plain" else np.clip(values, -_FURTHEST, _FURTHEST)


def to_gamma(scale: Scale, threshold: float) -> float:
    """Converts a threshold to the unit shown to readers: probability, distance or plain score."""
    if scale == "distance":
        return 0.0 - threshold  # no minus sign before a distance of 0
    if scale == "log":
        return math.exp(threshold)
    return float(sigmoid(threshold)) if scale == "logit" else threshold


def _probability_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Chooses ticks that do not overlap, preferring round probabilities."""
    apart, chosen = (high - low) / 6, {}
    for probability in _PROBABILITIES:
        mark = logit(probability)
        if low <= mark <= high and all(abs(mark - other) >= apart for other in chosen):
            digits = str(round(-math.log10(1 - probability))).translate(_SUPERSCRIPTS)
            chosen[mark] = f"1−10⁻{digits}" if probability > 0.99999 - 1e-9 else f"{probability:g}"
    return tuple(sorted(chosen.items())) if len(chosen) > 1 else _narrow_ticks(low, high)


def _narrow_ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Chooses linearly spaced round ticks for an axis with too few preferred probabilities."""
    first, last = float(sigmoid(low)), float(sigmoid(high))
    if first > 0.999:  # labelled as 1 minus a rest, like the thresholds on the page
        rests = linear("", float(sigmoid(-high)), float(sigmoid(-low))).ticks
        return tuple((-logit(rest), f"1−{text}") for rest, text in reversed(rests))
    return tuple((logit(mark), text) for mark, text in linear("", first, last).ticks)
