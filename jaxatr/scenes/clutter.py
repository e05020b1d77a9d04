"""Laws of radar clutter, and the multiplier that gives a detector its false alarm rate.

Clutter has speckle of L looks, gamma distributed intensity, whose mean may vary from cell to cell
by a gamma distributed texture of shape v: the K law. Its looks and its texture are all that a
detector at a constant false alarm rate needs to know, because it compares a cell with the level of
its neighbours. Cells are taken as independent of each other.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from jaxatr.typing import Float, Shaped

_SCORES = np.linspace(-8.5, 8.5, 103)  # of a normal law, at which levels are integrated
_WEIGHTS = np.exp(-(_SCORES**2) / 2) / np.exp(-(_SCORES**2) / 2).sum()


class Clutter(NamedTuple):
    """A law of clutter's intensity, of any mean.

    Attributes:
      looks: L; 1 for the exponential law of a single look.
      shape: v of the texture; infinite, the default, for clutter without one.
    """

    looks: float = 1.0
    shape: float = math.inf


def fitted(intensity: Shaped[np.ndarray, "..."], *, looks: float | None = None) -> Clutter:
    """Fits a law to the variance of the logarithms of clutter's intensities (log-cumulants).

    Args:
      intensity: of clutter alone; values that are not positive and finite are left out.
      looks: L, to fit the texture's shape of a K law; None to fit L of a gamma law.

    Raises:
      ValueError: fewer than two values are usable, or all are nearly equal.
    """
    usable = np.isfinite(intensity) & (intensity > 0)
    logarithms = np.log(intensity[usable], dtype=float)
    spread = float(np.var(logarithms)) if logarithms.size > 1 else 0.0
    if spread <= 1e-6:  # of a million looks; for equal values it may be a rounding error
        raise ValueError(
            f"intensity: the logarithms of {logarithms.size} positive values have a variance of "
            f"{spread:.3g}, wanted more than 1e-6, to fit a law"
        )
    if looks is None:
        return Clutter(_inverse_trigamma(spread))
    rest = spread - float(special.polygamma(1, looks))
    return Clutter(looks, _inverse_trigamma(rest) if rest > 1e-6 else math.inf)


def _inverse_trigamma(value: float) -> float:
    def above(exponent: float) -> float:
        return float(special.polygamma(1, math.exp(exponent))) - value

    return math.exp(optimize.root_scalar(above, bracket=(-14, 14)).root)


def multipliers(
    method: str, cells: int, rate: float, clutter: Clutter, order: float
) -> Float[np.ndarray, " n"]:
    r"""Solves for the multipliers of a level that the rate of false alarms asks for.

    The rate is :math:`E[S(\alpha R)]`, with S the share of clutter above an intensity and R the
    level of n training cells. For order statistics R's law is exact. For means it is a shifted
    gamma law, or that of its logarithm, with R's mean, variance and skewness, which is exact for
    the mean of a gamma law's cells.

    Args:
      method: ``"mean"``, ``"log_mean"`` or ``"order"``.
      cells: the largest number of training cells.
      rate: of false alarms, in (0, 1).
      clutter: the law.
      order: which order statistic, as a share of the cells.

    Returns:
      ``[cells + 1]``, the multiplier for each number of training cells; infinite for none.
    """
    counts = np.arange(1, cells + 1)[:, None]
    law = _Law.of(clutter)
    if method == "order":
        rank = np.ceil(order * counts)
        # The share of clutter above the k-th smallest of n cells has a beta law.
        levels = law.quantile(special.betaincinv(counts - rank + 1, rank, special.ndtr(-_SCORES)))
    elif method == "mean":
        levels = law.means(counts)
    else:
        levels = law.geometric_means(counts)
    low, high = np.full((cells, 1), -20.0), np.full((cells, 1), 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        found = law.above(np.exp(middle) * levels) @ _WEIGHTS
        more = (found > rate)[:, None]
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    # Of very few cells, no multiplier may give a low rate.
    solved = np.where(high[:, 0] < 39, np.exp(high[:, 0]), np.inf)
    return np.concatenate([[np.inf], solved])


class _Law(NamedTuple):
    """The share of clutter above an intensity, for clutter of mean 1, by interpolation.

    Attributes:
      clutter: its parameters.
      logarithms: ``[m]``, of intensities.
      tails: ``[m]``, logarithms of the shares above them.
    """

    clutter: Clutter
    logarithms: Float[np.ndarray, " m"]
    tails: Float[np.ndarray, " m"]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, clutter: Clutter) -> "_Law":
        logarithms = np.linspace(-30, 12, 6000)
        intensity = np.exp(logarithms)
        looks, shape = clutter
        if math.isinf(shape):
            tails = special.gammaincc(looks, looks * intensity)
        else:
            scores, step = np.linspace(-8.5, 8.5, 400, retstep=True)
            texture = _gamma_quantiles(np.array([[shape]]), scores)[0] / shape
            weights = step * np.exp(-(scores**2) / 2) / math.sqrt(2 * math.pi)
            tails = special.gammaincc(looks, looks * intensity[:, None] / texture) @ weights
        return cls(clutter, logarithms, np.log(np.maximum(tails, 1e-300)))

    def above(self, intensity: np.ndarray) -> np.ndarray:
        return np.exp(np.interp(np.log(intensity), self.logarithms, self.tails))

    def quantile(self, shares: np.ndarray) -> np.ndarray:
        """Returns the intensities that the given shares of clutter are above."""
        tails = np.log(np.maximum(shares, 1e-300))
        return np.exp(np.interp(-tails, -self.tails, self.logarithms))

    def means(self, counts: np.ndarray) -> np.ndarray:
        """Returns levels of the mean of some cells, ``[n, scores]``."""
        looks, shape = self.clutter
        second = (1 + 1 / looks) * (1 + 1 / shape)
        third = second * (1 + 2 / looks) * (1 + 2 / shape)
        variance = second - 1
        skewness = (third - 3 * second + 2) / variance**1.5
        kappa = 4 * counts / skewness**2
        scale = np.sqrt(variance / counts / kappa)
        levels = 1 + scale * (_gamma_quantiles(kappa, _SCORES) - kappa)
        return np.maximum(levels, 1e-12)

    def geometric_means(self, counts: np.ndarray) -> np.ndarray:
        """Returns levels of the exponential of the mean of some cells' logarithms."""
        looks, shape = self.clutter
        parts = [looks] if math.isinf(shape) else [looks, shape]
        mean = sum(special.digamma(part) - math.log(part) for part in parts)
        variance, third = (sum(special.polygamma(n, part) for part in parts) for n in (1, 2))
        grid = np.geomspace(0.05, 1e7, 4000)
        skewness = special.polygamma(2, grid) / special.polygamma(1, grid) ** 1.5
        kappa = np.interp(third / variance**1.5 / np.sqrt(counts), skewness, grid)
        logarithms = np.log(_gamma_quantiles(kappa, _SCORES)) - special.digamma(kappa)
        scale = np.sqrt(variance / counts / special.polygamma(1, kappa))
        return np.exp(mean + scale * logarithms)


def _gamma_quantiles(shape: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns quantiles ``[n, m]`` of gamma laws, shapes ``[n, 1]``, at normal scores ``[m]``."""
    low = special.gammaincinv(shape, special.ndtr(np.minimum(scores, 0)))
    high = special.gammainccinv(shape, special.ndtr(-np.maximum(scores, 0)))
    return np.maximum(np.where(scores <= 0, low, high), 1e-300)
