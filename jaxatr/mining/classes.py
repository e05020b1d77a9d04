"""Where the members of each class stand when a data set is ordered by coarse and fine class."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Int


class Classes(NamedTuple):
    """The two levels of classes of ``n`` examples, with what a fixed-size selection needs of them.

    A fine class is a pair of labels, coarse and fine: the same fine label under two coarse ones
    means two classes.

    Attributes:
      order: the examples' indices, ordered by coarse class, fine class, index.
      place: where each example stands in ``order``.
      fine: number of each example's fine class, counted in that order.
      fine_start: place of the first member of each example's fine class.
      fine_count: how many members that class has.
      coarse_start: place of the first member of each example's coarse class.
      coarse_count: how many members that class has.
      first_sibling: number of the first fine class of each example's coarse class.
      siblings: how many fine classes that coarse class has, the example's own included.
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
    """Returns the classes of examples with these labels; any integers will do."""
    n = len(fine)
    order = jnp.lexsort((fine, coarse)).astype(jnp.int32)
    place = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))
    new_coarse = _changes(coarse[order])
    new_fine = new_coarse | _changes(fine[order])
    coarse_of, fine_of = (jnp.cumsum(new, dtype=jnp.int32) - 1 for new in (new_coarse, new_fine))
    # The number of a group's first member, and of its members, for each member.
    fine_start, fine_count = _extent(fine_of)
    coarse_start, coarse_count = _extent(coarse_of)
    siblings = jax.ops.segment_sum(new_fine.astype(jnp.int32), coarse_of, n)[coarse_of]
    columns = (fine_start, fine_count, coarse_start, coarse_count, fine_of[coarse_start], siblings)
    return Classes(order, place, fine_of[place], *(column[place] for column in columns))


def _changes(ordered: Int[Array, " n"]) -> Array:
    return jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])[: len(ordered)]


def _extent(group: Int[Array, " n"]) -> tuple[Array, Array]:
    """Returns start and length of each ordered example's group."""
    n = len(group)
    count = jax.ops.segment_sum(jnp.ones(n, jnp.int32), group, n)
    start = jnp.cumsum(count) - count
    return start[group], count[group]
