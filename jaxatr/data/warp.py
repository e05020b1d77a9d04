"""Affine transforms of images with bilinear interpolation and reflected borders."""

import jax
import jax.numpy as jnp

from jaxatr.typing import Array, Float


def warp(
    image: Float[Array, "h w c"], matrix: Float[Array, "2 2"], shift: Float[Array, "2"]
) -> Float[Array, "h w c"]:
    """Transforms an image such that its pixel at ``p`` is the old one at ``matrix @ p + shift``.

    Positions are ``(row, column)`` from the centre. Beyond the border the image is reflected,
    without repeating the edge pixel.

    Args:
      image: the image to transform.
      matrix: maps new positions to old ones.
      shift: shift of the old positions, in pixels.
    """
    height, width, _ = image.shape
    y = jnp.arange(height, dtype=jnp.float32)[:, None] - (height - 1) / 2
    x = jnp.arange(width, dtype=jnp.float32)[None, :] - (width - 1) / 2
    row = matrix[0, 0] * y + matrix[0, 1] * x + shift[0] + (height - 1) / 2
    column = matrix[1, 0] * y + matrix[1, 1] * x + shift[1] + (width - 1) / 2
    row, column = _reflected(row, height), _reflected(column, width)

    def order_1(channel: Array) -> Array:
        return jax.scipy.ndimage.map_coordinates(channel, [row, column], order=1, mode="nearest")

    return jax.vmap(order_1, in_axes=2, out_axes=2)(image)


def _reflected(position: Array, length: int) -> Array:
    """Reflects positions into ``[0, length - 1]`` about the first and the last pixel."""
    if length == 1:
        return jnp.zeros_like(position)
    period = 2.0 * (length - 1)
    position = jnp.abs(position) % period
    return jnp.minimum(position, period - position)
