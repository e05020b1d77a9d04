r"""Exhaustive search by Euclidean distance, as fast as products and as exact as differences.

:math:`\lVert x - q \rVert^2 = \lVert x \rVert^2 - 2 x \cdot q + \lVert q \rVert^2` takes a single
product of matrices, but cancels: of two examples that are close to each other and far from the
rest, it cannot tell which is nearer. Here it only gives a lower bound of each distance. The
examples whose bounds do not exclude them are compared by differences, and so is every example for
the few queries where that is not enough.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Bool, Float, Int

MARGIN = 16
"""Number of candidates beyond k that are compared by differences."""

TRIALS = 16
"""Number of candidates of a chunk that are compared one by one, before all are compared."""


class Points(NamedTuple):
    """Examples to search, prepared. Those that are not finite are never nearer than one that is.

    Attributes:
      points: ``[n, d]``, scaled by a power of two to values within [-1, 1], which changes no digit
        and keeps squares from overflowing; 0 for an example that is not finite.
      exponent: ``[]``, the power of two by which the points were divided.
      origin: ``[d]``, the point nearest to their mean.
      centred: ``[n, d]``, the points relative to the origin. Distances do not depend on it, but the
        rounding errors of products do. An example as the origin keeps integers integers.
      squares: ``[n]``, the squared lengths of the centred points; infinite if not finite.
    """

    points: Float[Array, "n d"]
    exponent: Int[Array, ""]
    origin: Float[Array, " d"]
    centred: Float[Array, "n d"]
    squares: Float[Array, " n"]


def prepare(examples: Float[Array, "n d"]) -> Points:
    """Scales and centres examples, in float32 or wider."""
    with jax.numpy_dtype_promotion("standard"):
        examples = examples.astype(jnp.promote_types(examples.dtype, jnp.float32))
    finite = jnp.isfinite(examples).all(axis=1)
    points = jnp.where(finite[:, None], examples, 0)
    exponent = jnp.frexp(jnp.max(jnp.abs(points)))[1]
    points = jnp.ldexp(points, -exponent)
    mean = jnp.sum(points, axis=0) / jnp.maximum(jnp.sum(finite), 1).astype(points.dtype)
    away = jnp.where(finite, squared(points, mean[None]), jnp.inf)
    origin = points[jnp.argmin(away)]
    centred = jnp.where(finite[:, None], points - origin[None], 0)
    squares = jnp.where(finite, jnp.sum(jnp.square(centred), axis=1), jnp.inf)
    return Points(points, exponent, origin, centred, squares)


def squared(first: Float[Array, "*b d"], second: Float[Array, "*c d"]) -> Float[Array, "..."]:
    """Computes squared distances by differences, over the last axis; the other axes broadcast."""
    return jnp.sum(jnp.square(first - second), axis=-1)


def margin(dimensions: int, squares: Float[Array, "*n"]) -> Float[Array, "*n"]:
    r"""Returns each vector's part of the error of a squared distance computed from a product.

    The error is at most :math:`c u (\lVert x \rVert + \lVert q \rVert)^2` with u the unit roundoff,
    so at most :math:`2 c u (\lVert x \rVert^2 + \lVert q \rVert^2)`, a sum of one term for each
    vector. For the sum of d products, c is d in the worst case, and :math:`\lambda \sqrt d` with
    probability :math:`1 - 2 e^{-\lambda^2 / 2}` (Higham and Mary 2019, "A new approach to
    probabilistic rounding error analysis"), here with :math:`\lambda = 8`. A few more units are for
    the squared lengths, for centring, and for the sum of the three terms.

    Args:
      dimensions: d.
      squares: ``[...]``, the vectors' squared lengths; infinite ones, of examples that are not
        finite, have no error.
    """
    return 2 * _roundoff(dimensions, squares) * jnp.where(jnp.isinf(squares), 0, squares)


def _roundoff(dimensions: int, like: Array) -> float:
    return (min(dimensions, 8 * dimensions**0.5) + 8) * float(jnp.finfo(like.dtype).eps) / 2


def by_products(
    centred: Float[Array, "n d"],
    squares: Float[Array, " n"],
    queries: Float[Array, "b d"],
    query_squares: Float[Array, " b"],
) -> Float[Array, "b n"]:
    """Computes squared distances from products, to the precision of :func:`margin`."""
    products = jnp.dot(queries, centred.T, precision=jax.lax.Precision.HIGHEST)
    return squares[None] + query_squares[:, None] - 2 * products


def bounds(
    examples: Points, queries: Float[Array, "b d"]
) -> tuple[Float[Array, "b d"], Float[Array, "b n"]]:
    """Returns queries in the units of the points, and lower bounds of their squared distances."""
    points = jnp.ldexp(queries.astype(examples.points.dtype), -examples.exponent)
    centred = points - examples.origin[None]
    lengths = jnp.sum(jnp.square(centred), axis=1)
    least = [one - margin(points.shape[1], one) for one in (examples.squares, lengths)]
    return points, by_products(examples.centred, least[0], centred, least[1])


def nearest(
    examples: Points,
    queries: Float[Array, "b d"],
    k: int,
    excluded: Int[Array, " b"] | None = None,
) -> tuple[Float[Array, "b k"], Int[Array, "b k"]]:
    """Finds distances and indices of the k nearest examples, nearest first, ties by lower index.

    Args:
      examples: from :func:`prepare`.
      queries: ``[b, d]``, in the units of the examples before they were prepared. The distances of
        a query that is not finite are NaN or infinite.
      k: number of neighbours, 1 to n.
      excluded: ``[b]``, an example for each query that is not one of its neighbours.

    Returns:
      ``(distances, indices)``, ``[b, k]`` each. The distance of an example that is excluded or not
      finite is infinite.
    """
    count, dimensions = examples.points.shape
    points, least = bounds(examples, queries)
    excluded = jnp.full(len(points), -1) if excluded is None else excluded
    least = jnp.where(jnp.arange(count)[None] == excluded[:, None], jnp.inf, least)
    highest, candidates = jax.lax.top_k(-least, min(k + MARGIN, count))
    slack = 1 - 2 * _roundoff(dimensions, points)

    def ranked(query: Array, without: Array, rows: Array) -> tuple[Array, Array]:
        apart = squared(examples.points[rows], query[None])
        out = jnp.isinf(examples.squares[rows]) | (rows == without)
        apart, rows = jax.lax.sort((jnp.where(out, jnp.inf, apart), rows), num_keys=2)
        return apart[:k], rows[:k]

    def search(given: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        query, without, rows, rest = given
        apart, found = ranked(query, without, rows)
        if len(rows) == count:
            return apart, found
        sure = (apart[-1] < slack * rest) | ~jnp.isfinite(apart[-1])
        every = jnp.arange(count, dtype=rows.dtype)
        return jax.lax.cond(sure, lambda: (apart, found), lambda: ranked(query, without, every))

    # A loop over queries, because a condition on many at once computes both of its branches.
    apart, found = jax.lax.map(search, (points, excluded, candidates, -highest[:, -1]))
    return jnp.ldexp(jnp.sqrt(apart), examples.exponent), found


class Best(NamedTuple):
    """The lowest value so far for each query, and the index of its example.

    Attributes:
      value: ``[b]``; infinite if there is none.
      index: ``[b]``; of equal values, the lowest.
    """

    value: Float[Array, "*b"]
    index: Int[Array, "*b"]

    def updated(self, value: Float[Array, "*b"], index: Int[Array, "*b"]) -> "Best":
        """Returns the lower of both, and of equal values the one with the lower index."""
        better = (value < self.value) | (
            (value == self.value) & (index < self.index) & jnp.isfinite(value)
        )
        return Best(jnp.where(better, value, self.value), jnp.where(better, index, self.index))


def lowest(
    best: Best,
    bounds: Float[Array, "b m"],
    index: Int[Array, " m"],
    value: Callable[[Int[Array, " b"]], Float[Array, " b"]],
    values: Callable[[Int[Array, ""]], Float[Array, " m"]],
) -> Best:
    """Finds the lowest value of each query in a chunk of examples, given lower bounds of them.

    Args:
      best: the lowest values of earlier chunks.
      bounds: ``[b, m]``, lower bounds of the values; infinite for examples to leave out.
      index: ``[m]``, the examples' indices.
      value: computes the value of one example of the chunk for each query, from positions in the
        chunk; infinite to leave it out after all.
      values: computes the values of all examples of the chunk for one query, from its position in
        the batch; those with an infinite bound are ignored.
    """
    positions = jnp.arange(bounds.shape[1], dtype=jnp.int32)[None]

    def open_(best: Best, least: Array) -> Bool[Array, " b"]:
        return (least <= best.value) & jnp.isfinite(least)

    def undecided(state) -> Array:
        best, least, _, trial = state
        return (trial < TRIALS) & open_(best, least).any()

    # Candidates in the order of bound and position; the bounds are read and never written.
    def try_one(state):
        best, least, after, trial = state
        same = bounds == least[:, None]
        here = jnp.where(same & (positions > after[:, None]), positions, bounds.shape[1])
        chosen = jnp.min(here, axis=1) % bounds.shape[1]
        found = jnp.where(open_(best, least), value(chosen), jnp.inf)
        left = (bounds > least[:, None]) | (same & (positions > chosen[:, None]))
        further = jnp.min(jnp.where(left, bounds, jnp.inf), axis=1)
        after = jnp.where(further == least, chosen, -1)
        return best.updated(found, index[chosen]), further, after, trial + 1

    start = best, jnp.min(bounds, axis=1), jnp.full_like(best.index, -1), 0
    best, least, _, _ = jax.lax.while_loop(undecided, try_one, start)

    def compare_all(state):
        best, left = state
        row = jnp.argmax(left)
        found = jnp.where(jnp.isinf(bounds[row]), jnp.inf, values(row))
        lower = jnp.min(found)
        first = jnp.min(jnp.where(found == lower, index, jnp.iinfo(index.dtype).max))
        one = Best(best.value[row], best.index[row]).updated(lower, first)
        best = Best(best.value.at[row].set(one.value), best.index.at[row].set(one.index))
        return best, left.at[row].set(False)

    left = open_(best, least)
    return jax.lax.while_loop(lambda state: state[1].any(), compare_all, (best, left))[0]
