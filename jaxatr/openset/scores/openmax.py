r"""Log odds of the known classes against "unknown", OpenMax (Bendale and Boult 2016).

For each known class a Weibull distribution describes how far from the class's mean logits its most
distant training examples lie. A query's logits are revised downwards by how improbable its
distances are, and what they lose is the logit of the class "unknown". NumPy in float64 throughout:
with a shift of :math:`10^4`, float32 is wrong in the third digit.

"Towards open set deep networks".
"""

from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import scipy.spatial
import scipy.special

from jaxatr.openset import gallery
from jaxatr.openset.inputs import finite, known_labels
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

Distance = Literal["euclidean", "eucos"]
DISTANCE_WEIGHTS = {"euclidean": (1.0, 0.0), "eucos": (1 / 200, 1.0)}
"""Name to the weights of the Euclidean and of the cosine distance."""


class OpenMax(NamedTuple):
    """A fitted model of k classes.

    Attributes:
      means: ``[k, k]``, each class's mean logits, of its correctly classified examples.
      scale: ``[k]``, λ of each class's Weibull distribution.
      shape: ``[k]``, its exponent.
      offset: ``[k]``, what is added to a distance before its distribution is asked.
      alpha: ``[]``, how many of the highest logits are revised.
      distance_weights: ``[2]``, of the Euclidean and of the cosine distance.
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
    r"""Returns scale λ and exponent of the Weibull distribution of the largest distances.

    The two-parameter maximum-likelihood fit of libMR's ``fit_high``, to

    .. math:: x' = x + T - \min(\text{tail}), \qquad P(x') = 1 - e^{-(x' / \lambda)^\kappa}

    Args:
      distances: ``[n]``.
      tail_size: how many of the largest are fitted; all of them, where there are fewer.
      shift: T, 1 in libMR as published and 10,000 in that of OpenMax's authors; None fits the
        distances as they are.

    Raises:
      ValueError: ``tail_size`` is below 2, ``shift`` is not positive, or no distribution is the
        most likely one: the tail's distances are all equal, or not positive without a shift.

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
    """Returns OpenMax fitted to the correctly classified of these examples.

    Args:
      logits: ``[n, k]``, of the closed-set classifier on training examples.
      labels: ``[n]``, integers in ``[0, k)``.
      tail_size: distances that each class's distribution is fitted to; a class with fewer
        examples has all of its own fitted.
      alpha: how many of the highest logits are revised, by weights that fall linearly with the
        rank; None for all.
      distance: ``euclidean``, or ``eucos``, the Euclidean distance over 200 plus the cosine
        distance; the same here and on queries, other than in the authors' code.
      shift: T of :func:`fit_weibull`.

    Raises:
      ValueError: as :func:`fit_weibull`; a logit is not finite; a label is no known class; fewer
        than three examples of a class are classified correctly; ``alpha`` is out of range.
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
    if (counts < 3).any():  # two are equally far from their mean
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
    """Returns the probabilities of the known classes and, last, of "unknown" (algorithm 2).

    As published, a negative logit is revised upwards and takes from the unknown's.

    Args:
      model: of :func:`fit`.
      logits: ``[b, k]``.
    """
    return scipy.special.softmax(_revised(model, np.asarray(logits, np.float64)), axis=1)


def score(
    model: OpenMax,
    logits: Float[ArrayLike, "b k"],
    *,
    kind: Literal["log_odds", "energy"] = "log_odds",
    extra: int = 0,
) -> Float[np.ndarray, " b"]:
    r"""Returns how known each example is.

    Args:
      model: of :func:`fit`.
      logits: ``[b, k]``.
      kind: ``log_odds``: :math:`\log(1 - P) - \log P` with P the probability of "unknown". The
        order is that of −P, without ties where P rounds to 1; the score is at least logit(γ) where
        the probability of the known classes together is at least γ.
        ``energy``: :math:`\log \sum_i e^{z_i (1 - w_i)}`, with w the distributions' probabilities,
        not weighted by rank, and no logit for "unknown". The published code of Safaei et al. 2023
        ranks by it, negated.
      extra: how many of the last classes are no known targets: their probability counts as that of
        "unknown" (G-OpenMax has one, of generated images).

    Raises:
      ValueError: ``kind`` is neither, or no known class is left.
    """
    z = np.asarray(logits, np.float64)
    chex.assert_shape(z, (None, *np.shape(model.scale)))
    known = z.shape[1] - extra
    if not 0 < known <= z.shape[1]:
        raise ValueError(f"extra: got {extra} of {z.shape[1]} classes, wanted a known one left")
    if kind == "energy":
        kept = (z * (1 - _outlying(model, z)))[:, :known]
        return np.asarray(scipy.special.logsumexp(kept, axis=1))
    if kind != "log_odds":
        raise ValueError(f"kind: got {kind!r}, wanted 'log_odds' or 'energy'")
    revised = _revised(model, z)
    inside, outside = (
        np.asarray(scipy.special.logsumexp(part, axis=1))
        for part in (revised[:, :known], revised[:, known:])
    )
    return inside - outside


def _check_tail(tail_size: int, shift: float | None) -> None:
    if tail_size < 2:
        raise ValueError(f"tail_size: got {tail_size}, wanted at least 2")
    if shift is not None and not 0 < shift < np.inf:
        raise ValueError(f"shift: got {shift}, wanted a positive number or None")


def _most_likely(tails: list[np.ndarray], shift: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns scale and exponent of each tail's distribution; a tail is sorted upwards.

    With y = log(x'/unit), the exponent κ is the one root of
    Σ y exp(κy) / Σ exp(κy) − mean(y) − 1/κ, which grows with κ. Logarithms of ratios to the
    smallest x' keep their digits at any shift, and dividing them by the largest, which makes 0 and
    1 the ends of every tail, lets one bisection serve all classes.
    """
    lowest, highest = (np.array([tail[end] for tail in tails]) for end in (0, -1))
    if shift is None and (lowest <= 0).any():
        raise ValueError(f"distances: got {lowest.min()} in the tail, wanted > 0 without a shift")
    equal = highest - lowest <= 1e-12 * np.abs(highest)
    if equal.any():
        which = np.flatnonzero(equal)
        raise ValueError(
            f"distances: the tails of {which.tolist()} hold one value only, {lowest[which[0]]}"
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
    """Returns the exponents of logarithms that span [0, 1], by bisection."""
    mean = np.sum(share * y, axis=1)

    def too_low(kappa):
        powers = share * np.exp(kappa[:, None] * (y - 1))
        return np.sum(powers * y, axis=1) / np.sum(powers, axis=1) < mean + 1 / kappa

    low = 1 / (1 - mean)  # where even the largest possible first term, 1, is too low
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
    """Returns weighted sums of Euclidean and cosine distance; that of no direction is 1."""
    euclidean, cosine = weights
    distances = euclidean * scipy.spatial.distance.cdist(rows, means)
    if cosine:
        unit_rows, unit_means = (
            x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(np.float64).tiny)
            for x in (rows, means)
        )
        distances += cosine * (1 - unit_rows @ unit_means.T)
    return distances


def _outlying(model: OpenMax, logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b k"]:
    """Returns w: for each class, the share of its tail that lies closer than the query."""
    means, scale, shape, offset, _, weights = (np.asarray(leaf) for leaf in model)
    x = _distances(logits, means, weights) + offset
    with np.errstate(over="ignore"):  # an infinite power is a w of 1
        powers = np.power(np.maximum(x, 0) / scale, shape)
    return -np.expm1(-powers)


def _revised(model: OpenMax, logits: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "b k+1"]:
    """Returns the revised logits, the unknown's last."""
    alpha, k = int(model.alpha), logits.shape[1]
    by_rank = np.maximum(alpha - np.arange(k), 0) / alpha  # (α + 1 − i) / α for the i-th
    order = np.argsort(-logits, axis=1, kind="stable")
    weights = np.empty_like(logits)
    np.put_along_axis(weights, order, np.broadcast_to(by_rank, logits.shape), axis=1)
    taken = logits * weights * _outlying(model, logits)
    return np.concatenate([logits - taken, taken.sum(axis=1, keepdims=True)], axis=1)


def _traced(model: OpenMax, outputs: Outputs) -> Array:
    """Computes :func:`score` for a graph, in float32, which a shift of 1 leaves digits enough."""
    z, (euclidean, cosine) = jnp.asarray(outputs.logits), model.distance_weights
    means, classes, alpha = jnp.asarray(model.means), z.shape[1], int(model.alpha)
    x = euclidean * jnp.linalg.norm(z[:, None] - means, axis=-1) + model.offset
    if cosine:
        x = x + cosine * (1 - jnp.dot(gallery.unit(z), gallery.unit(means).T))
    outlying = 1 - jnp.exp(-((jnp.maximum(x, 0) / model.scale) ** model.shape))
    before = np.tri(classes, k=-1, dtype=bool)  # of equal logits the first ranks higher
    above = z[:, None] > z[:, :, None]
    level = (z[:, None] == z[:, :, None]) & before
    rank = jnp.sum((above | level).astype(jnp.float32), axis=-1)
    taken = z * jnp.maximum(alpha - rank, 0) / alpha * outlying
    return jax.nn.logsumexp(z - taken, axis=1) - jnp.sum(taken, axis=1)


SCORE = Score(
    name="openmax",
    title="OpenMax",
    score=lambda model, out: score(model, out.logits),
    fit=lambda out, _: fit(out.logits, out.labels),
    traced=_traced,
    shapes=("alpha", "distance_weights"),
    fixed_threshold=lambda gamma: float(scipy.special.logit(gamma)),
    model=OpenMax,
)
