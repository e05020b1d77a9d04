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


def moved(
    images: Float[Array, "b h w c"], shifts: Float[Array, "b 2"], scales: Float[Array, " b"]
) -> Float[Array, "b h w c"]:
    """Cuts a box out of each image that has been moved and scaled, at the image's own size.

    Rows and columns are interpolated by two products of matrices, without a gather, so that the
    operation is quick and can be exported. Borders are reflected as in :func:`warp`.

    Args:
      images: the images to cut from.
      shifts: shift of the box's centre down and right, in pixels; less than half of the image.
      scales: side of the box, as a share of the image's; below 2.
    """

    def weights(length: int, shift: Array) -> Array:
        places = jnp.arange(length, dtype=jnp.float32)
        middle = (length - 1) / 2
        position = jnp.abs(scales[:, None] * (places - middle) + middle + shift[:, None])
        position = jnp.minimum(position, 2 * (length - 1) - position)
        return jnp.maximum(1 - jnp.abs(position[:, :, None] - places), 0)

    rows, columns = (weights(images.shape[1 + axis], shifts[:, axis]) for axis in (0, 1))
    cut = jnp.einsum("byh,bhwc->bywc", rows, images)
    return jnp.einsum("bxw,bywc->byxc", columns, cut)


def _reflected(position: Array, length: int) -> Array:
    """Reflects positions into ``[0, length - 1]`` about the first and the last pixel."""
    if length == 1:
        return jnp.zeros_like(position)
    period = 2.0 * (length - 1)
    position = jnp.abs(position) % period
    return jnp.minimum(position, period - position)
