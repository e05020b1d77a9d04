"""Scales maps to the unit interval, the last step of a method."""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, ArrayLike, Float


def finished(maps: Float[Array, "b h w"], *, raw: bool) -> Float[Array, "b h w"]:
    """Scales maps as :func:`scaled` does, or not at all if ``raw``."""
    return maps if raw else scaled(maps)


@jax.jit
def scaled(maps: Float[ArrayLike, "b h w"]) -> Float[Array, "b h w"]:
    """Scales each map to [0, 1] by its own minimum and maximum.

    A map that is constant up to rounding becomes 0 everywhere. A map with a value that is not
    finite gets values that are NaN.
    """
    least = jnp.min(maps, axis=(1, 2), keepdims=True)
    greatest = jnp.max(maps, axis=(1, 2), keepdims=True)
    span = greatest - least
    rounding = 4 * jnp.finfo(maps.dtype).eps * jnp.maximum(jnp.abs(least), jnp.abs(greatest))
    constant = span <= jnp.where(jnp.isfinite(rounding), rounding, 0)
    scaled = (maps - least) / jnp.where(span == 0, 1, span)
    return jnp.where(constant, 0, jnp.minimum(scaled, 1))  # x / x may exceed 1 under jit
