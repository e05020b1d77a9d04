"""Scales maps to the unit interval, the last step of a method."""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Float


def finished(maps: Float[Array, "b h w"], *, raw: bool) -> Float[Array, "b h w"]:
    """Scales each map to [0, 1] by its own minimum and maximum, or not at all if ``raw``.

    A map that is constant up to rounding becomes 0 everywhere.
    """
    return maps if raw else _scaled(maps)


@jax.jit
def _scaled(maps: Float[Array, "b h w"]) -> Float[Array, "b h w"]:
    least = jnp.min(maps, axis=(1, 2), keepdims=True)
    greatest = jnp.max(maps, axis=(1, 2), keepdims=True)
    span = greatest - least
    rounding = 4 * jnp.finfo(maps.dtype).eps * jnp.maximum(jnp.abs(least), jnp.abs(greatest))
    scaled = (maps - least) / jnp.where(span > 0, span, 1)
    return jnp.where(span > rounding, jnp.minimum(scaled, 1), 0)  # x / x may exceed 1 under jit
