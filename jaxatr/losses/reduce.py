"""The one way in which per-example values become a mean."""

import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Bool, Float


def masked_mean(values: Float[ArrayLike, "..."], mask: Bool[ArrayLike, "..."]) -> Float[Array, ""]:
    """Returns the mean of the selected values; 0, with zero gradient, where none is selected.

    Values that are not selected may be anything, NaN included.

    >>> float(masked_mean(jnp.array([1.0, 3.0, jnp.nan]), jnp.array([True, True, False])))
    2.0
    """
    total = jnp.sum(jnp.where(mask, values, 0))
    return total / jnp.maximum(jnp.sum(mask), 1)
