"""The search behind both nearest-neighbour methods, in blocks of references and chunks of examples.

The examples are laid out by coarse class, then by index. The negative is searched among all of
them, the positive and the sibling only in the reference's coarse class. References are processed in
the same order, so the coarse classes of a block form a short range. The distances therefore cost
little more than one product of all references with all examples, in pieces that fit into the cache.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.mining.classes import Classes
from jaxatr.typing import Array, Bool, Float, Int, Shaped

_CHUNK = 1024  # examples at a time
_FORBIDDEN = np.uint32(0xFFFFFFFF)
_NONE = np.int32(0x7FFFFFFF)


class _Layout(NamedTuple):
    """The examples by coarse class, padded to whole chunks.

    Attributes:
      points: ``[m, d]``, embeddings.
      half_squares: ``[m]``, half the squared norms; infinite for padding.
      index: ``[m]``, index of the example at each position.
      fine: ``[m]``, number of its fine class; -2 for padding.
    """

    points: Float[Array, "m d"]
    half_squares: Float[Array, " m"]
    index: Int[Array, " m"]
    fine: Int[Array, " m"]


class _Queries(NamedTuple):
    """A block of references; every field is ``[b]``, except the points ``[b, d]``."""

    points: Float[Array, "b d"]
    index: Int[Array, " b"]
    fine: Int[Array, " b"]
    start: Int[Array, " b"]  # of the coarse class in the layout
    end: Int[Array, " b"]
    drawn: Int[Array, " b"] | None


def nearest_members(
    embeddings: Float[Array, "n d"],
    classes: Classes,
    references: Int[Array, " r"],
    drawn: Int[Array, " r"] | None,
    *,
    from_negative: bool,
    block_size: int,
) -> tuple[Int[Array, " r"], Int[Array, " r"], Int[Array, " r"]]:
    """Finds positive, sibling and negative of each reference; -1 if there is none.

    Args:
      embeddings: embeddings of the whole data set; non-finite ones are ignored.
      classes: the examples' classes.
      references: indices of the references.
      drawn: the fine class of each reference's sibling; None for any suitable class.
      from_negative: whether positive and sibling are those nearest to the negative (method 1) or to
        the reference (method 2).
      block_size: references per block.
    """
    count = len(references)
    if not count:
        return references, references, references
    embeddings, finite = _centred(embeddings)
    layout, place = _lay_out(embeddings, finite, classes)
    order = jnp.argsort(place[references])  # neighbours in the layout share their range
    chosen = references[order]
    start = classes.coarse_start[chosen]
    queries = _Queries(
        embeddings[chosen],
        chosen,
        classes.fine[chosen],
        start,
        start + classes.coarse_count[chosen],
        None if drawn is None else drawn[order],
    )
    blocks = -(-count // block_size)
    size = -(-count // blocks)  # equal sizes minimise padding

    def blocked(column: Array) -> Array:
        filled = [(0, blocks * size - count)] + [(0, 0)] * (column.ndim - 1)
        return jnp.pad(column, filled, mode="edge").reshape(blocks, size, *column.shape[1:])

    search = partial(_search, layout, place, from_negative)
    found = jax.lax.map(search, jax.tree.map(blocked, queries))
    back = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32))
    positive, sibling, negative = (column.reshape(-1)[:count][back] for column in found)
    return positive, sibling, jnp.where(finite[references], negative, -1)


def _centred(
    embeddings: Float[Array, "n d"],
) -> tuple[Float[Array, "n d"], Bool[Array, " n"]]:
    """Centres the embeddings on the one nearest to their mean and scales them; marks finite ones.

    A common shift does not change distances, but makes the rounding errors of products depend on
    the spread of the embeddings instead of their distance from the origin. Shifting by an example
    instead of the mean keeps integers integers, and ties ties. A common scale does not change the
    order of distances, and keeps squares from overflowing; a power of two changes no digit.
    """
    embeddings = embeddings.astype(jnp.promote_types(embeddings.dtype, jnp.float32))
    finite = jnp.isfinite(embeddings).all(axis=1)
    points = jnp.where(finite[:, None], embeddings, 0)
    points = jnp.ldexp(points, -jnp.frexp(jnp.max(jnp.abs(points)))[1])
    mean = jnp.sum(points, axis=0) / jnp.maximum(jnp.sum(finite), 1)
    away = jnp.where(finite, jnp.sum(jnp.square(points - mean), axis=1), jnp.inf)
    return jnp.where(finite[:, None], points - points[jnp.argmin(away)], 0), finite


def _lay_out(
    embeddings: Array, finite: Array, classes: Classes
) -> tuple[_Layout, Int[Array, " n"]]:
    """Returns the layout and each example's position in it; non-finite examples become padding."""
    count = len(embeddings)
    order = jnp.argsort(classes.coarse_start, stable=True).astype(jnp.int32)
    place = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32))
    missing = -count % min(_CHUNK, count)

    def filled(column: Array, value: float | int) -> Array:
        widths = [(0, missing)] + [(0, 0)] * (column.ndim - 1)
        return jnp.pad(column[order], widths, constant_values=value)

    half_squares = jnp.where(finite, jnp.sum(jnp.square(embeddings), axis=-1) / 2, jnp.inf)
    layout = _Layout(
        filled(embeddings, 0),
        filled(half_squares, jnp.inf),
        jnp.pad(order, (0, missing), constant_values=_NONE),
        filled(jnp.where(finite, classes.fine, -2), -2),
    )
    return layout, place


def _search(
    layout: _Layout, place: Int[Array, " n"], from_negative: bool, queries: _Queries
) -> tuple[Array, Array, Array]:
    chunk = min(_CHUNK, len(place))
    nothing = jnp.full(len(queries.index), _NONE)

    def closeness(part: _Layout, points: Array) -> Float[Array, "b m"]:
        # Half the squared distance, up to a constant per query.
        products = jnp.dot(points, part.points.T, precision=jax.lax.Precision.HIGHEST)
        return part.half_squares - products

    def own_class(number: Array) -> tuple[_Layout, Array]:
        """Returns a chunk, and a mask of its examples in each query's coarse class."""
        first = number * chunk
        part = _Layout(*(jax.lax.dynamic_slice_in_dim(x, first, chunk) for x in layout))
        places = first + jnp.arange(chunk, dtype=jnp.int32)
        inside = (places >= queries.start[:, None]) & (places < queries.end[:, None])
        return part, inside

    def find_negative(number, best):
        part, inside = own_class(number)
        values = jnp.where(inside, jnp.inf, closeness(part, queries.points))
        return _lower(best, values, part.index)

    infinite = jnp.full(nothing.shape, jnp.inf, layout.points.dtype)
    radius, negative = jax.lax.fori_loop(
        0, len(layout.points) // chunk, find_negative, (infinite, nothing)
    )
    radius = radius[:, None]
    there = place[jnp.where(negative == _NONE, 0, negative)]
    centres, own = layout.points[there], layout.half_squares[there][:, None]

    def find_others(number, best):
        part, inside = own_class(number)
        beyond = closeness(part, queries.points) - radius
        distance = beyond
        if from_negative:
            # Clipped at 0, because only non-negative floats are ordered like their bits.
            distance = jnp.maximum(closeness(part, centres) + own, 0)
        rank = _rank(beyond, distance)
        same = part.fine == queries.fine[:, None]
        positive = inside & same & (part.index != queries.index[:, None])
        sibling = inside & ~same & (part.fine >= 0)
        if queries.drawn is not None:
            sibling = part.fine == queries.drawn[:, None]
        return tuple(
            _lower(one, jnp.where(allowed, rank, _FORBIDDEN), part.index)
            for one, allowed in zip(best, (positive, sibling), strict=True)
        )

    forbidden = jnp.full(nothing.shape, _FORBIDDEN)
    first, last = jnp.min(queries.start) // chunk, (jnp.max(queries.end) - 1) // chunk
    (_, positive), (_, sibling) = jax.lax.fori_loop(
        first, last + 1, find_others, ((forbidden, nothing), (forbidden, nothing))
    )
    members = jnp.stack([positive, sibling, negative])
    positive, sibling, negative = jnp.where(members == _NONE, -1, members)
    return positive, sibling, negative


def _lower(
    best: tuple[Array, Int[Array, " b"]], values: Shaped[Array, "b m"], index: Int[Array, " m"]
) -> tuple[Array, Int[Array, " b"]]:
    """Updates the lowest values found so far; ties go to the lower index.

    The highest possible value stands for "none".
    """
    # Two plain reductions: XLA:CPU does not vectorise an argmin.
    lowest = jnp.min(values, axis=1)
    here = jnp.min(jnp.where(values == lowest[:, None], index, _NONE), axis=1)
    highest = jnp.inf if jnp.issubdtype(values.dtype, jnp.floating) else _FORBIDDEN
    here = jnp.where(lowest == highest, _NONE, here)
    value, found = best
    better = (lowest < value) | ((lowest == value) & (here < found))
    return jnp.where(better, lowest, value), jnp.where(better, here, found)


def _rank(beyond: Float[Array, "b m"], distance: Float[Array, "b m"]) -> Shaped[Array, "b m"]:
    """Encodes the order of preference in unsigned integers.

    The bits of non-negative floats are ordered like the floats. An example beyond the negative is
    encoded by the bits of its distance. Any other has the sign bit set, and its value falls with
    its distance from the reference.
    """
    bits = partial(jax.lax.bitcast_convert_type, new_dtype=jnp.uint32)
    distance, beyond = distance.astype(jnp.float32), beyond.astype(jnp.float32)
    return bits(jnp.where(beyond > 0, distance, -jnp.abs(beyond)))
