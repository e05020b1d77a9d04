"""The search behind both nearest-neighbour methods, in blocks of references and chunks of examples.

The examples are laid out by coarse class, then by index. The negative is searched among all of
them, the positive and the sibling only in the reference's coarse class. References are processed in
the same order, so the coarse classes of a block form a short range. The distances therefore cost
little more than one product of all references with all examples, in pieces that fit into the cache.
Where products cannot tell which of two examples is nearer, differences do (:mod:`jaxatr.search`).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import search
from jaxatr.mining.classes import Classes
from jaxatr.search import Best
from jaxatr.typing import Array, Float, Int

_CHUNK = 512  # examples at a time, so that the bounds of a block of references stay in the cache
_NONE = np.int32(0x7FFFFFFF)


class _Layout(NamedTuple):
    """The examples by coarse class, padded to whole chunks.

    Attributes:
      points: ``[m, d]``, embeddings.
      centred: ``[m, d]``, embeddings relative to one of them.
      squares: ``[m]``, the squared lengths of the centred ones; infinite for padding.
      index: ``[m]``, index of the example at each position.
      fine: ``[m]``, number of its fine class; -2 for padding.
    """

    points: Float[Array, "m d"]
    centred: Float[Array, "m d"]
    squares: Float[Array, " m"]
    index: Int[Array, " m"]
    fine: Int[Array, " m"]


class _Queries(NamedTuple):
    """A block of references; every field is ``[b]``, except points and centred ``[b, d]``."""

    points: Float[Array, "b d"]
    centred: Float[Array, "b d"]
    squares: Float[Array, " b"]
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
    examples = search.prepare(embeddings)
    layout, place = _lay_out(examples, classes)
    order = jnp.argsort(place[references])  # neighbours in the layout share their range
    chosen = references[order]
    start = classes.coarse_start[chosen]
    queries = _Queries(
        examples.points[chosen],
        examples.centred[chosen],
        jnp.sum(jnp.square(examples.centred[chosen]), axis=1),
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

    find = partial(_search, layout, place, from_negative)
    found = jax.lax.map(find, jax.tree.map(blocked, queries))
    back = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32))
    positive, sibling, negative = (column.reshape(-1)[:count][back] for column in found)
    return positive, sibling, jnp.where(jnp.isfinite(examples.squares)[references], negative, -1)


def _lay_out(examples: search.Points, classes: Classes) -> tuple[_Layout, Int[Array, " n"]]:
    """Returns the layout and each example's position in it; non-finite examples become padding."""
    count = len(examples.points)
    order = jnp.argsort(classes.coarse_start, stable=True).astype(jnp.int32)
    place = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32))
    missing = -count % min(_CHUNK, count)

    def filled(column: Array, value: float | int) -> Array:
        widths = [(0, missing)] + [(0, 0)] * (column.ndim - 1)
        return jnp.pad(column[order], widths, constant_values=value)

    layout = _Layout(
        filled(examples.points, 0),
        filled(examples.centred, 0),
        filled(examples.squares, jnp.inf),
        jnp.pad(order, (0, missing), constant_values=_NONE),
        filled(jnp.where(jnp.isfinite(examples.squares), classes.fine, -2), -2),
    )
    return layout, place


def _search(
    layout: _Layout, place: Int[Array, " n"], from_negative: bool, queries: _Queries
) -> tuple[Array, Array, Array]:
    chunk = min(_CHUNK, len(place))
    count, dimensions = len(queries.index), layout.points.shape[1]
    # Made like the queries, which jax.shard_map tells from constants.
    nothing = Best(jnp.full_like(queries.squares, jnp.inf), jnp.full_like(queries.index, _NONE))

    def distances(part: _Layout, centred: Array, squares: Array) -> tuple[Array, Array]:
        """Returns squared distances, ``[b, m]``, and bounds of their errors."""
        found = search.by_products(part.centred, part.squares, centred, squares)
        of_part, of_query = (search.margin(dimensions, one) for one in (part.squares, squares))
        return found, of_part[None] + of_query[:, None]

    def own_class(number: Array) -> tuple[_Layout, Array]:
        """Returns a chunk, and a mask of its examples in each query's coarse class."""
        first = number * chunk
        part = _Layout(*(jax.lax.dynamic_slice_in_dim(x, first, chunk) for x in layout))
        places = first + jnp.arange(chunk, dtype=jnp.int32)[None]
        inside = (places >= queries.start[:, None]) & (places < queries.end[:, None])
        return part, inside

    def find_negative(number: Array, best: Best) -> Best:
        part, inside = own_class(number)
        near, error = distances(part, queries.centred, queries.squares)
        return search.lowest(
            best,
            jnp.where(inside, jnp.inf, near - error),
            part.index,
            lambda at: search.squared(part.points[at], queries.points),
            lambda row: search.squared(part.points, queries.points[row][None]),
        )

    chunks = len(layout.points) // chunk
    radius, negative = jax.lax.fori_loop(0, chunks, find_negative, nothing)
    there = place[jnp.where(negative == _NONE, 0, negative)]

    # A row for each member: the positive of every query, then the sibling of every query.
    def both(column: Array) -> Array:
        return jnp.concatenate([column] * 2)

    points, limit = both(queries.points), both(radius)
    to = both(layout.points[there]) if from_negative else points

    def others(farthest: bool) -> Best:
        """Finds the nearest beyond the negative, or the farthest of all."""

        def find(number: Array, best: Best) -> Best:
            part, inside = own_class(number)
            away, error = distances(part, queries.centred, queries.squares)
            possible, least = True, -(away + error)
            if not farthest:
                possible, least = away + error > radius[:, None], away - error
                if from_negative:
                    near, close = distances(part, layout.centred[there], layout.squares[there])
                    least = near - close
            same = part.fine[None] == queries.fine[:, None]
            positive = inside & same & (part.index[None] != queries.index[:, None])
            sibling = inside & ~same & (part.fine >= 0)[None]
            if queries.drawn is not None:
                sibling = part.fine[None] == queries.drawn[:, None]
            bounds = [jnp.where(one & possible, least, jnp.inf) for one in (positive, sibling)]

            def value(rows: Array, at: Array) -> Array:
                away = search.squared(at, points[rows])
                if farthest:
                    return -away
                found = search.squared(at, to[rows]) if from_negative else away
                return jnp.where(away > limit[rows], found, jnp.inf)

            return search.lowest(
                best,
                jnp.concatenate(bounds),
                part.index,
                lambda at: value(jnp.arange(2 * count), part.points[at]),
                lambda row: value(row[None], part.points),
            )

        first, last = jnp.min(queries.start) // chunk, (jnp.max(queries.end) - 1) // chunk
        return jax.lax.fori_loop(first, last + 1, find, Best(*map(both, nothing)))

    beyond = others(farthest=False).index
    found = jax.lax.cond(
        (beyond == _NONE).any(),
        lambda: jnp.where(beyond == _NONE, others(farthest=True).index, beyond),
        lambda: beyond,
    )
    members = jnp.stack([*found.reshape(2, count), negative])
    positive, sibling, negative = jnp.where(members == _NONE, -1, members)
    return positive, sibling, negative
