"""Positions of the members of each class in a data set ordered by coarse and fine class."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Int


class Classes(NamedTuple):
    """The coarse and fine classes of ``n`` examples, as arrays of fixed size.

    A fine class is identified by its coarse and its fine label: the same fine label under two
    coarse labels means two classes.

    Attributes:
      order: indices of the examples, ordered by coarse class, fine class and index.
      place: position of each example in ``order``.
      fine: number of each example's fine class, counted in that order.
      fine_start: position of the first member of each example's fine class.
      fine_count: size of each example's fine class.
      coarse_start: position of the first member of each example's coarse class.
      coarse_count: size of each example's coarse class.
      first_sibling: number of the first fine class in each example's coarse class.
      siblings: number of fine classes in each example's coarse class, its own included.
    """

    order: Int[Array, " n"]
    place: Int[Array, " n"]
    fine: Int[Array, " n"]
    fine_start: Int[Array, " n"]
    fine_count: Int[Array, " n"]
    coarse_start: Int[Array, " n"]
    coarse_count: Int[Array, " n"]
    first_sibling: Int[Array, " n"]
    siblings: Int[Array, " n"]


def order_classes(fine: Int[Array, " n"], coarse: Int[Array, " n"]) -> Classes:
    """Orders examples by their labels, which may be any integers."""
    n = len(fine)
    order = jnp.lexsort((fine, coarse)).astype(jnp.int32)
    place = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))
    new_coarse = _changes(coarse[order])
    new_fine = new_coarse | _changes(fine[order])
    coarse_of, fine_of = (jnp.cumsum(new, dtype=jnp.int32) - 1 for new in (new_coarse, new_fine))
    fine_start, fine_count = _extent(fine_of)
    coarse_start, coarse_count = _extent(coarse_of)
    siblings = jax.ops.segment_sum(new_fine.astype(jnp.int32), coarse_of, n)[coarse_of]
    columns = (fine_start, fine_count, coarse_start, coarse_count, fine_of[coarse_start], siblings)
    return Classes(order, place, fine_of[place], *(column[place] for column in columns))


def _changes(ordered: Int[Array, " n"]) -> Array:
    return jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])[: len(ordered)]


def _extent(group: Int[Array, " n"]) -> tuple[Array, Array]:
    """Returns start and length of the group of each ordered example."""
    n = len(group)
    count = jax.ops.segment_sum(jnp.ones(n, jnp.int32), group, n)
    start = jnp.cumsum(count) - count
    return start[group], count[group]
