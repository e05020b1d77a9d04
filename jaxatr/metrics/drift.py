"""Drift: tests whether several statistics of new examples still have their earlier distribution."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEAST_DISTANCE = 0.1
"""Least distance of two distributions that counts: among many examples, a test finds any other."""


class Shift(NamedTuple):
    """The comparison of one statistic.

    Attributes:
      name: name of the statistic.
      distance: Kolmogorov and Smirnov's distance, the largest difference of the two distribution
        functions, in [0, 1].
      p_value: probability of at least this distance for any of the compared statistics, if none of
        the distributions has changed.
      higher: whether the new values are higher where the distance is largest.
    """

    name: str
    distance: float
    p_value: float
    higher: bool

    def found(self, level: float) -> bool:
        """Returns whether the distribution has changed, by a test of all statistics at a level."""
        return self.p_value <= level and self.distance >= LEAST_DISTANCE


def shifts(reference: Mapping[str, ArrayLike], seen: Mapping[str, ArrayLike]) -> tuple[Shift, ...]:
    """Compares the distributions of statistics by Kolmogorov and Smirnov's test of two samples.

    The p-values are multiplied by the number of statistics (Bonferroni). So the probability that
    :meth:`Shift.found` is true for any of them is at most the level if the new examples are
    independent and of the same distribution as the reference, however the statistics depend on one
    another.

    Args:
      reference: values ``[n]`` of each statistic, by name; infinite ones are allowed.
      seen: values ``[m]`` of the same statistics of new examples.

    Raises:
      ValueError: a statistic is missing, has no values, or one is NaN.

    >>> (one,) = shifts({"a": np.arange(20.0)}, {"a": np.arange(20.0) + 10})
    >>> round(one.distance, 3), one.higher, one.found(0.05)
    (0.5, True, True)
    """
    if reference.keys() != seen.keys():
        raise ValueError(f"got the statistics {', '.join(seen)}, wanted {', '.join(reference)}")
    return tuple(
        _shift(name, np.asarray(values, np.float64), np.asarray(seen[name], np.float64), len(seen))
        for name, values in reference.items()
    )


def _shift(name: str, reference: np.ndarray, seen: np.ndarray, compared: int) -> Shift:
    from scipy import stats  # slow to import

    for values in (reference, seen):
        if not values.size or np.isnan(values).any():
            raise ValueError(f"{name}: got {values.size} values, wanted some, and none NaN")
    distance, p_value = np.asarray(stats.ks_2samp(seen, reference), np.float64).tolist()
    points = np.concatenate([reference, seen])
    before, now = (
        np.searchsorted(np.sort(values), points, side="right") / len(values)
        for values in (reference, seen)
    )
    higher = bool(np.max(before - now) >= np.max(now - before))
    return Shift(name, distance, min(1.0, compared * p_value), higher)
