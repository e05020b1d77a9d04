"""Changes over time: in which runs of periods a statistic differs from that of a reference."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.metrics.drift import LEAST_DISTANCE
from jaxatr.typing import Bool, Float, Int

LEAST_SHARE = 0.03
"""Least difference of two shares that counts: among many examples, a test finds any other."""

FEWEST = 20
"""Least number of examples of two samples that are compared."""

_GRID = 128  # points at which distribution functions are compared


class Scan(NamedTuple):
    """The comparison of every run of consecutive periods with a reference.

    Entry ``[i, j]`` is that of the periods from ``i`` to ``j``, both included; it is NaN if these
    have too few examples, or if ``j < i``.

    Attributes:
      log_p: ``[t, t]``, logarithm of the p-value of a test of two samples.
      effect: ``[t, t]``, how much larger the statistic is than the reference's: a signed distance
        of Kolmogorov and Smirnov's, or a difference of shares.
      contrast: ``[t, t]``, how much the periods differ from all others, in units of chance: the
        largest marks the change best.
      least: least absolute effect that counts.
    """

    log_p: Float[np.ndarray, "t t"]
    effect: Float[np.ndarray, "t t"]
    contrast: Float[np.ndarray, "t t"]
    least: float

    @property
    def looks(self) -> int:
        """The number of tests."""
        return int(np.isfinite(self.log_p).sum())


class Change(NamedTuple):
    """A run of periods in which a statistic differs from the reference.

    Attributes:
      first, last: numbers of its first and its last period.
      effect: see :class:`Scan`.
      log_p: logarithm of the p-value of the best of the tests that found it, not corrected.
    """

    first: int
    last: int
    effect: float
    log_p: float


def scan_values(
    reference: Float[np.ndarray, " m"],
    values: Float[np.ndarray, " n"],
    periods: Int[np.ndarray, " n"],
) -> Scan:
    """Compares the distribution of a statistic in runs of periods with that of a reference.

    The test is Kolmogorov and Smirnov's of two samples, with the p-value of the limiting
    distribution; the functions are compared at up to 128 points, which cannot raise the distance.

    Args:
      reference: values of the reference; infinite ones are allowed, as below.
      values: values of the examples.
      periods: period of each, from 0 to t - 1.

    Raises:
      ValueError: there is no value, or one is NaN.
    """
    if not len(values) or np.isnan(values).any() or np.isnan(reference).any():
        raise ValueError(f"values: got {len(values)}, wanted some, and none NaN")
    points = _points(np.concatenate([reference, values]))
    places = np.searchsorted(points, values, side="left")
    count = int(periods.max()) + 1
    table = np.zeros((count, len(points) + 1))
    np.add.at(table, (periods, places), 1.0)
    below = _accumulated(np.cumsum(table, axis=1)[:, :-1])  # [t + 1, g], at most each point
    sizes = _accumulated(np.bincount(periods, minlength=count).astype(np.float64))
    at_most = np.searchsorted(np.sort(reference), points, side="right").astype(np.float64)
    scan = _empty(count, LEAST_DISTANCE)
    if len(reference) < FEWEST:
        return scan
    every, in_all = at_most + below[-1], len(reference) + sizes[-1]
    for first in range(count):
        size = sizes[first + 1 :] - sizes[first]
        inside = below[first + 1 :] - below[first]
        enough = size >= FEWEST
        share = inside[enough] / size[enough, None]
        lower = at_most / len(reference) - share  # positive where the values are higher
        place = np.abs(lower).argmax(axis=1)
        effect = np.take_along_axis(lower, place[:, None], axis=1)[:, 0]
        effective = size[enough] * len(reference) / (size[enough] + len(reference))
        outside = in_all - size[enough]
        apart = np.abs((every - inside[enough]) / outside[:, None] - share).max(axis=1)
        columns = first + np.flatnonzero(enough)
        scan.effect[first, columns] = effect
        scan.log_p[first, columns] = _log_kolmogorov(np.sqrt(effective) * np.abs(effect))
        scan.contrast[first, columns] = np.sqrt(size[enough] * outside / in_all) * apart
    return scan


def scan_shares(
    reference: tuple[int, int], hits: Bool[np.ndarray, " n"], periods: Int[np.ndarray, " n"]
) -> Scan:
    """Compares the share of examples with a property in runs of periods with a reference's.

    The test is Fisher's exact one, of both sides.

    Args:
      reference: number of examples of the reference with the property, and of all.
      hits: whether each example has the property.
      periods: period of each, from 0 to t - 1.

    Raises:
      ValueError: there is no example.
    """
    from scipy import stats  # slow to import

    if not len(hits):
        raise ValueError("hits: got none, wanted some")
    count = int(periods.max()) + 1
    having = _accumulated(np.bincount(periods, hits.astype(np.float64), minlength=count))
    sizes = _accumulated(np.bincount(periods, minlength=count).astype(np.float64))
    scan = _empty(count, LEAST_SHARE)
    before, of = reference
    if of < FEWEST:
        return scan
    first, last = np.triu_indices(count)
    size, hit = sizes[last + 1] - sizes[first], having[last + 1] - having[first]
    enough = size >= FEWEST
    first, last, size, hit = (one[enough] for one in (first, last, size, hit))
    drawn = stats.hypergeom(of + size, before + hit, size)
    tail = np.minimum(drawn.cdf(hit), drawn.sf(hit - 1))
    p_value = np.clip(2 * tail, np.finfo(np.float64).tiny, 1.0)
    outside, others = of + sizes[-1] - size, before + having[-1] - hit
    pooled = (before + having[-1]) / (of + sizes[-1])
    chance = np.sqrt(max(pooled * (1 - pooled), 1e-12) * (1 / size + 1 / outside))
    scan.log_p[first, last] = np.log(p_value)
    scan.effect[first, last] = hit / size - before / of
    scan.contrast[first, last] = np.abs(hit / size - others / outside) / chance
    return scan


def changes(scan: Scan, level: float, looks: int) -> list[Change]:
    """Returns the runs of periods that differ from the reference, in their order.

    The probability that any of the changes of all scans is found by chance is at most the level
    (Bonferroni), if ``looks`` is the sum of their looks, and examples are independent. Of runs that
    overlap, the one with the largest contrast counts; neighbours that differ in the same direction
    become one.

    Args:
      scan: the comparisons.
      level: probability of finding any change where there is none.
      looks: number of tests among which the level is divided.
    """
    with np.errstate(invalid="ignore"):  # NaN is never found
        left = scan.log_p <= math.log(level / max(1, looks))
        left &= np.abs(scan.effect) >= scan.least
    found: list[Change] = []
    while left.any():
        best = int(np.where(left, scan.contrast, -1.0).argmax())
        first, last = divmod(best, len(left))
        found.append(_change(scan, first, last, float(scan.log_p[first, last])))
        left[: last + 1, first:] = False  # all that overlap
    return _joined(scan, sorted(found))


def _joined(scan: Scan, found: Sequence[Change]) -> list[Change]:
    """Joins neighbours of the same direction."""
    joined: list[Change] = []
    for one in found:
        before = joined[-1] if joined else None
        if before and before.last + 1 == one.first and before.effect * one.effect > 0:
            log_p = min(before.log_p, one.log_p)
            joined[-1] = _change(scan, before.first, one.last, log_p)
        else:
            joined.append(one)
    return joined


def _change(scan: Scan, first: int, last: int, log_p: float) -> Change:
    return Change(first, last, float(scan.effect[first, last]), log_p)


def _empty(count: int, least: float) -> Scan:
    log_p, effect, contrast = np.full((3, count, count), np.nan)
    return Scan(log_p, effect, contrast, least)


def _accumulated(counts: np.ndarray) -> np.ndarray:
    """Returns the sums of the counts before each period, and of all."""
    return np.concatenate([np.zeros((1, *counts.shape[1:])), np.cumsum(counts, axis=0)])


def _points(values: np.ndarray) -> np.ndarray:
    """Returns at most :data:`_GRID` points at which distribution functions are compared."""
    ordered = np.unique(values)
    if len(ordered) <= _GRID:
        return ordered
    ordered = np.sort(values)  # evenly spaced among all examples
    places = np.linspace(0, len(ordered) - 1, _GRID).round().astype(int)
    return np.unique(ordered[places])


def _log_kolmogorov(distance: np.ndarray) -> np.ndarray:
    """Returns the logarithm of Kolmogorov's limiting probability of a larger distance."""
    from scipy import special

    near = np.minimum(distance, 3.0)  # beyond it, one term is exact to 1e-23
    return np.where(distance > 3.0, math.log(2) - 2 * distance**2, np.log(special.kolmogorov(near)))
