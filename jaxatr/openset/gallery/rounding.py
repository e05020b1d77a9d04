"""Rows of a gallery in 8 bits, for exported graphs.

A row is int8 times a step of its own, so that a gallery takes a quarter of float32's memory, and
its products with queries are products of integers, which no processor saturates
(:mod:`jaxatr.saturation`). Cosines differ by about 5e-4.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import saturation
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

_ZERO = 128
"""The integer of a query's 0: engines multiply uint8 by int8 several times faster than int8."""


class Rounded(NamedTuple):
    """Rows that :func:`rounded` has rounded.

    Attributes:
      integers: ``[..., d]``, int8.
      steps: ``[..., 1]``, float32, by which the integers are multiplied.
      sums: ``[...]``, int32, sums of the integers.
      squares: ``[...]``, float32, the rounded rows' squared lengths.
    """

    integers: Int[ArrayLike, "*n d"]
    steps: Float[ArrayLike, "*n 1"]
    sums: Int[ArrayLike, "*n"]
    squares: Float[ArrayLike, "*n"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the rows."""
        return np.shape(self.integers)


def rounded(rows: Shaped[ArrayLike, "*n d"]) -> Rounded:
    """Rounds rows to 8 bits; a row that is all 0 stays 0."""
    values = np.asarray(rows, np.float32)
    steps = saturation.steps(values)[..., None]
    integers = np.round(values / steps).astype(np.int8)
    squares = np.square(integers * steps).sum(axis=-1)
    return Rounded(integers, steps, integers.sum(axis=-1, dtype=np.int32), squares)


def products(rows: Rounded, queries: Float[Array, "m d"]) -> Float[Array, "m n"]:
    """Multiplies queries, each rounded with a step of its own, by all rows."""
    d = queries.shape[1]
    largest = jnp.abs(queries).max(axis=1, keepdims=True)
    steps = jnp.where(largest > 0, largest, 1) / saturation.LARGEST
    whole = (jnp.round(queries / steps) + _ZERO).astype(jnp.uint8)
    sums = jax.lax.dot_general(
        whole,
        jnp.asarray(rows.integers).reshape(-1, d),
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.int32,
    )
    sums -= _ZERO * jnp.asarray(rows.sums).reshape(-1)
    return sums.astype(jnp.float32) * jnp.asarray(rows.steps).reshape(-1) * steps


def products_at(
    rows: Any, places: Int[Array, "b n"], queries: Float[Array, "b s d"]
) -> Float[Array, "b s n"]:
    """Multiplies some rows by queries in floating point; each query has rows of its own.

    Args:
      rows: an array ``[n, d]``, or :class:`Rounded`.
      places: indices of the rows, which are not checked.
      queries: in s forms each. If these are many, XLA:CPU is faster in this order of the operands.
    """
    found = at(rows.integers if isinstance(rows, Rounded) else rows, places).astype(queries.dtype)
    products = jnp.einsum("bsd,bnd->bsn", queries, found, precision=jax.lax.Precision.HIGHEST)
    return (
        products * at(rows.steps, places)[:, None, :, 0] if isinstance(rows, Rounded) else products
    )


def at(rows: ArrayLike, places: Int[Array, "*b"]) -> Array:
    """Returns rows of an array at places that are not checked, which is faster."""
    return jnp.asarray(rows).at[places].get(mode="promise_in_bounds")
