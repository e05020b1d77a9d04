r"""Log odds of the known classes against "unknown", OpenMax (Bendale and Boult 2016).

For each known class, a Weibull distribution models the distances of the most distant training
examples to the mean logits of the class. The less probable a query's distances are, the more its
logits are reduced; the sum of the reductions is the logit of "unknown". All computations are in
float64 with NumPy, because float32 is wrong in the third digit at a shift of :math:`10^4`.

"Towards open set deep networks".
"""

from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.logistic import logit, logsumexp, softmax
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

Distance = Literal["euclidean", "eucos"]
DISTANCE_WEIGHTS = {"euclidean": (1.0, 0.0), "eucos": (1 / 200, 1.0)}
"""Weights of the Euclidean and of the cosine distance, by name."""


class OpenMax(NamedTuple):
    """A fitted model of k classes.

    Attributes:
      means: ``[k, k]``, mean logits of each class's correctly classified examples.
      scale: ``[k]``, scale λ of each class's Weibull distribution.
      shape: ``[k]``, exponent of each class's distribution.
      offset: ``[k]``, added to distances before the distribution is evaluated.
      alpha: ``[]``, number of the largest logits to revise.
      distance_weights: ``[2]``, weights of the Euclidean and of the cosine distance.
    """

    means: Float[ArrayLike, "k k"]
    scale: Float[ArrayLike, " k"]
    shape: Float[ArrayLike, " k"]
    offset: Float[ArrayLike, " k"]
    alpha: Int[ArrayLike, ""]
    distance_weights: Float[ArrayLike, "2"]


def fit_weibull(
    distances: Float[ArrayLike, " n"], *, tail_size: int = 20, shift: float | None = 1.0
) -> tuple[float, float]:
    r"""Fits a Weibull distribution to the largest distances; returns its scale λ and exponent.

    This is the two-parameter maximum-likelihood fit of libMR's ``fit_high``:

    .. math:: x' = x + T - \min(\text{tail}), \qquad P(x') = 1 - e^{-(x' / \lambda)^\kappa}

    Args:
      distances: ``[n]``.
      tail_size: number of the largest distances to fit to; all if there are fewer.
      shift: T; 1 in libMR as published, and 10,000 in the version of OpenMax's authors. None fits
        the distances without a shift.

    Raises:
      ValueError: ``tail_size`` is below 2, ``shift`` is not positive, or the maximum-likelihood fit
        does not exist: the tail's distances are all equal, or not positive without a shift.

    >>> scale, shape = fit_weibull(np.arange(0.1, 3.05, 0.1))
    >>> round(scale, 4), round(shape, 4)
    (2.1627, 3.8506)
    """
    _check_tail(tail_size, shift)
    tail = np.sort(finite("distances", np.asarray(distances)[:, None])[:, 0])[-tail_size:]
    scale, shape = _most_likely([tail], shift)
    return float(scale[0]), float(shape[0])


def fit(
    logits: Float[ArrayLike, "n k"],
    labels: Int[ArrayLike, " n"],
    *,
    tail_size: int = 20,
    alpha: int | None = None,
    distance: Distance = "euclidean",
    shift: float | None = 1.0,
) -> OpenMax:
    """Fits OpenMax to the correctly classified training examples.

    Args:
      logits: ``[n, k]``, of the closed-set classifier on training examples.
      labels: ``[n]``, integers in ``[0, k)``.
      tail_size: number of distances to which the distribution of each class is fitted; all if there
        are fewer.
      alpha: number of the largest logits to revise, with weights that decrease linearly with the
        rank; None for all.
      distance: ``euclidean``, or ``eucos``, the Euclidean distance over 200 plus the cosine
        distance. Unlike in the authors' code, it is the same for training examples and queries.
      shift: T, the value to which the smallest distance of a tail is shifted; None for no shift.

    Raises:
      ValueError: ``tail_size``, ``shift`` or ``alpha`` is out of range; ``distance`` is unknown; a
        logit is not finite; a label is not a known class; fewer than three examples of a class are
        classified correctly; or the distances of a tail are all equal, or not positive without a
        shift.
    """
    _check_tail(tail_size, shift)
    if distance not in DISTANCE_WEIGHTS:
        raise ValueError(f"distance: got {distance!r}, wanted one of {list(DISTANCE_WEIGHTS)}")
    logits = finite("logits", logits)
    k = logits.shape[1]
    labels = known_labels(labels, len(logits), k)
    if alpha is not None and not 1 <= alpha <= k:
        raise ValueError(f"alpha: got {alpha}, wanted 1 to {k}, the classes")
    correct = logits.argmax(axis=1) == labels
    counts = np.bincount(labels[correct], minlength=k)
    if (counts < 3).any():  # two examples are always equally far from their mean
        few = {int(c): int(counts[c]) for c in np.flatnonzero(counts < 3)}
        raise ValueError(f"labels: got {few} correct examples by class, wanted at least 3 of each")
    weights = np.array(DISTANCE_WEIGHTS[distance])
    groups = [logits[correct & (labels == c)] for c in range(k)]
    means = np.stack([group.mean(axis=0) for group in groups])
    tails = [
        np.sort(_distances(group, mean[None], weights)[:, 0])[-tail_size:]
        for group, mean in zip(groups, means, strict=True)
    ]
    scale, shape = _most_likely(tails, shift)
    lowest = np.array([tail[0] for tail in tails])
    offset = np.zeros(k) if shift is None else shift - lowest
    return OpenMax(means, scale, shape, offset, np.array(alpha or k), weights)


def probabilities(model: OpenMax, logits: Float[ArrayLike, "b k"]) -> Float[np.ndarray, "b k+1"]:
    """Computes the probabilities of the known classes and, last, of "unknown" (algorithm 2).

    As published, the revision of a negative logit raises it and lowers the logit of "unknown".
    """
    return softmax(_revised(model, np.asarray(logits, np.float64)))


def score(
    model: OpenMax,
    logits: Float[ArrayLike, "b k"],
    *,
    kind: Literal["log_odds", "energy"] = "log_odds",
    extra: int = 0,
) -> Float[np.ndarray, " b"]:
    r"""Computes how known each example is.

    Args:
      kind: ``log_odds``: :math:`\log(1 - P) - \log P` with P the probability of "unknown". It ranks
        like −P, but without ties where P rounds to 1. The score is at least logit(γ) if the total
        probability of the known classes is at least γ.
        ``energy``: :math:`\log \sum_i e^{z_i (1 - w_i)}`, with w the probabilities of the
        distributions, not weighted by rank, and without a logit for "unknown". The published code
        of Safaei et al. (2023) ranks by its negative.
      extra: number of classes at the end that are not known; their probability is added to that of
        "unknown" (G-OpenMax has one, for generated images).

    Raises:
      ValueError: ``kind`` does not exist, or no known class is left.
    """
    z = np.asarray(logits, np.float64)
    chex.assert_shape(z, (None, *np.shape(model.scale)))
    known = z.shape[1] - extra
    if not 0 < known <= z.shape[1]:
        raise ValueError(f"extra: got {extra} of {z.shape[1]} classes, wanted one or more left")
    if kind == "energy":
        kept = (z * (1 - _outlying(model, z)))[:, :known]
        return logsumexp(kept)
    if kind != "log_odds":
        raise ValueError(f"kind: got {kind!r}, wanted 'log_odds' or 'energy'")
    revised = _revised(model, z)
    return logsumexp(revised[:, :known]) - logsumexp(revised[:, known:])


def _check_tail(tail_size: int, shift: float | None) -> None:
    if tail_size < 2:
        raise ValueError(f"tail_size: got {tail_size}, wanted at least 2")
    if shift is not None and not 0 < shift < np.inf:
        raise ValueError(f"shift: got {shift}, wanted a positive number or None")


def _most_likely(tails: list[np.ndarray], shift: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Fits each tail's distribution; returns scales and exponents. Tails are sorted ascending.

    With y = log(x'/unit), the exponent κ is the only root of
    Σ y exp(κy) / Σ exp(κy) − mean(y) − 1/κ, which increases with κ. Logarithms of ratios to the
    smallest x' are accurate at any shift. Dividing them by the largest, so that every tail spans
    [0, 1], lets all classes share one bisection.
    """
    lowest, highest = (np.array([tail[end] for tail in tails]) for end in (0, -1))
    if shift is None and (lowest <= 0).any():
        raise ValueError(f"distances: got {lowest.min()} in the tail, wanted > 0 without a shift")
    equal = highest - lowest <= 1e-12 * np.abs(highest)
    if equal.any():
        which = np.flatnonzero(equal)
        raise ValueError(
            f"distances: the tails of {which.tolist()} contain a single value, {lowest[which[0]]}"
        )
    unit = lowest if shift is None else np.full(len(tails), shift)
    size = max(len(tail) for tail in tails)
    share = np.array([[1 / len(tail)] * len(tail) + [0] * (size - len(tail)) for tail in tails])
    padded = np.stack([np.pad(tail, (0, size - len(tail)), mode="edge") for tail in tails])
    logs = np.log1p((padded - lowest[:, None]) / unit[:, None])
    span = logs[:, -1]
    y = logs / span[:, None]
    kappa = _exponent(y, share)
    log_moment = np.log(np.sum(share * np.exp(kappa[:, None] * (y - 1)), axis=1))
    return unit * np.exp(span * (1 + log_moment / kappa)), kappa / span


def _exponent(y: Float[np.ndarray, "k t"], share: Float[np.ndarray, "k t"]) -> np.ndarray:
    """Computes the exponents of tails whose logarithms span [0, 1], by bisection."""
    mean = np.sum(share * y, axis=1)

    def too_low(kappa):
        powers = share * np.exp(kappa[:, None] * (y - 1))
        return np.sum(powers * y, axis=1) / np.sum(powers, axis=1) < mean + 1 / kappa

    low = 1 / (1 - mean)  # too low, even if the first term of the equation has its maximum, 1
    high = 2 * low
    while (lower := too_low(high)).any():
        low, high = np.where(lower, high, low), np.where(lower, 2 * high, high)
    for _ in range(54):  # the bits of a double
        middle = (low + high) / 2
        lower = too_low(middle)
        low, high = np.where(lower, middle, low), np.where(lower, high, middle)
    return (low + high) / 2


def _distances(
    rows: Float[np.ndarray, "b k"], means: Float[np.ndarray, "m k"], weights: np.ndarray
) -> Float[np.ndarray, "b m"]:
    """Computes weighted sums of Euclidean and cosine distance, which is 1 for zero vectors."""
    from scipy.spatial import distance  # slow to import

    euclidean, cosine = weights
    distances = euclidean * distance.cdist(rows, means)
    if cosine:
        unit_rows, unit_means = (
            x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
            for x in (rows, means)
        )
        distances += cosine * (1 - unit_rows @ unit_means.T)
    return distances


def _outlying(model: OpenMax, logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b k"]:
    """Computes w: for each class, the distribution's probability of a smaller distance."""
    means, scale, shape, offset, _, weights = (np.asarray(leaf) for leaf in model)
    x = _distances(logits, means, weights) + offset
    with np.errstate(over="ignore"):  # an infinite power gives a w of 1
        powers = np.power(np.maximum(x, 0) / scale, shape)
    return -np.expm1(-powers)


def _revised(model: OpenMax, logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b k+1"]:
    """Computes the revised logits, with that of "unknown" last."""
    alpha, k = int(model.alpha), logits.shape[1]
    by_rank = np.maximum(alpha - np.arange(k), 0) / alpha  # (α + 1 − i) / α for the i-th
    order = np.argsort(-logits, axis=1, kind="stable")
    weights = np.empty_like(logits)
    np.put_along_axis(weights, order, np.broadcast_to(by_rank, logits.shape), axis=1)
    taken = logits * weights * _outlying(model, logits)
    return np.concatenate([logits - taken, taken.sum(axis=1, keepdims=True)], axis=1)


def _traced(model: OpenMax, logits: Float[ArrayLike, "b k"]) -> Array:
    """Computes :func:`score` in a traced graph, in float32, which is enough for a shift of 1."""
    z, (euclidean, cosine) = jnp.asarray(logits), model.distance_weights
    means, classes, alpha = jnp.asarray(model.means), z.shape[1], int(model.alpha)
    x = euclidean * jnp.linalg.norm(z[:, None] - means[None], axis=-1) + model.offset[None]
    if cosine:
        ends = gallery.unit(z), gallery.unit(means).T
        x = x + cosine * (1 - jnp.dot(*ends, precision=jax.lax.Precision.HIGHEST))
    outlying = 1 - jnp.exp(-((jnp.maximum(x, 0) / model.scale[None]) ** model.shape[None]))
    before = np.tri(classes, k=-1, dtype=bool)[None]  # of equal logits the first ranks higher
    above = z[:, None] > z[:, :, None]
    level = (z[:, None] == z[:, :, None]) & before
    rank = jnp.sum((above | level).astype(jnp.float32), axis=-1)
    taken = z * jnp.maximum(alpha - rank, 0) / alpha * outlying
    return jax.nn.logsumexp(z - taken, axis=1) - jnp.sum(taken, axis=1)


PART = Score.of_arrays(
    "openmax",
    "OpenMax",
    score,
    fit,
    traced=_traced,
    shapes=("alpha", "distance_weights"),
    fixed_threshold=logit,
    model=OpenMax,
)
