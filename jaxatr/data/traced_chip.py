"""The geometry of a chip in operations that a file of ONNX can hold, with Pillow's very rounding.

Pillow's bilinear filter is a product with one matrix for the columns and one for the rows. Of 8-bit
images its weights are whole numbers of :math:`2^{-22}`, and each product is rounded to 8 bits: in
whole numbers throughout, so that the chip is the same to the bit. The sizes of the image may be
symbols of :mod:`jax.export`.
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from PIL import Image

from jaxatr.data.chip import LUMA, Chip
from jaxatr.typing import Array, Float, Shaped

_BITS = (8, 7, 7)  # of a weight, found a few at a time as 32 bits hold no larger dividend
_ONE = 1 << sum(_BITS)


def traced_chips(
    chip: Chip, images: Shaped[Array, "b h w c"], shape: tuple[int, int, int]
) -> Float[Array, "b y x d"]:
    """Makes the chips of images that are all of one size, as :class:`Chip` makes each, in float32.

    A side of an image may have about 2,900 times the square root of the chip's side. Where no step
    changes the size, it has to be the chip's.

    Args:
      chip: the geometry.
      images: uint8, uint16 or float32.
      shape: ``(y, x, d)`` of the chips.
    """
    dtype = images.dtype
    if chip.blank_center:
        images = _blanked(images, chip.blank_center)
    if chip.center_crop:
        for axis in (1, 2):
            start = (images.shape[axis] - chip.center_crop) // 2
            images = lax.dynamic_slice_in_dim(images, start, chip.center_crop, axis)
    if chip.size:
        images = _resized(images, shape[:2], dtype, square=chip.square)
    if images.shape[3] != shape[2]:
        images = _gray(images, dtype) if shape[2] == 1 else jnp.repeat(images, 3, axis=3)
    return images.astype(jnp.float32)


def _blanked(images: Array, side: int) -> Array:
    images = images.astype(jnp.float32)  # which holds 16 bits, and is chosen among by every runtime
    inside = []
    for size in images.shape[1:3]:
        top = jnp.maximum((size - side) // 2, 0)
        places = jnp.arange(size)
        inside.append((places >= top) & (places < top + side))
    rows, columns = inside
    return jnp.where((rows[:, None] & columns)[:, :, None], 0, images)


def _resized(images: Array, shape: tuple[int, ...], dtype: Any, *, square: bool) -> Array:
    """Pads to a square with zeros, if it is to be one, and resizes, as Pillow does."""
    rows, columns = images.shape[1:3]
    eight = dtype == jnp.uint8
    longest = (rows, columns) if square else None
    across = _weights(columns, shape[1], longest or (columns,), whole_numbers=eight)
    down = _weights(rows, shape[0], longest or (rows,), whole_numbers=eight)

    def product(images: Array, weights: Array, axis: int) -> Array:
        numbers = (((axis,), (0,)), ((), ()))
        found = lax.dot_general(images, weights, numbers, precision=lax.Precision.HIGHEST)
        return lax.div(found + _ONE // 2, jnp.int32(_ONE)) if eight else found

    def columns_first(images: Array) -> Array:
        return jnp.transpose(product(product(images, across, 2), down, 1), (0, 3, 2, 1))

    def rows_first(images: Array) -> Array:
        return jnp.transpose(product(product(images, down, 1), across, 1), (0, 2, 3, 1))

    found = images.astype(jnp.int32 if eight else jnp.float32)
    if eight and not square and rows_of_tall_images_first():
        tall = (jnp.int32(rows) > shape[0]) & (2 * jnp.int32(columns) < jnp.int32(rows) + shape[0])
        return lax.cond(tall, rows_first, columns_first, found)
    found = columns_first(found)
    return jnp.round(found) if dtype == jnp.uint16 else found


@functools.cache
def rows_of_tall_images_first() -> bool:
    """Says whether the installed Pillow resizes the rows of a tall image first, as 13 does.

    The order shows in the rounding between the two.
    """
    noise = np.random.default_rng(0).integers(0, 256, (90, 10), np.uint8)
    image, bilinear = Image.fromarray(noise), Image.Resampling.BILINEAR
    whole = np.asarray(image.resize((9, 9), bilinear))
    rows_first = image.resize((10, 9), bilinear).resize((9, 9), bilinear)
    return np.array_equal(whole, np.asarray(rows_first))


def _weights(
    size: Any, side: int, longest: tuple[Any, ...], *, whole_numbers: bool
) -> Shaped[Array, "n m"]:
    """Computes what each of ``size`` pixels adds to each of ``side``.

    The filter's values are fractions with one denominator, so that whole numbers hold them.

    Args:
      size: of the image.
      side: of the chip.
      longest: sizes of which the largest is that of the padded image.
      whole_numbers: give them in units of one :data:`_ONE`-th, as Pillow rounds them.
    """
    whole = jnp.int32(longest[0])
    for other in longest[1:]:
        whole = jnp.maximum(whole, jnp.int32(other))
    reach = 2 * jnp.maximum(whole, side)

    def shares(places: Array) -> Array:
        apart = (2 * places[:, None] + 1) * side - (2 * jnp.arange(side) + 1) * whole
        return jnp.maximum(reach - jnp.abs(apart), 0)

    everywhere = jnp.arange(sum(longest))  # at least as many as the padded image has
    inside = (everywhere < whole)[:, None]
    total = jnp.sum(jnp.where(inside, shares(everywhere), 0), axis=0)
    own = shares(jnp.arange(size) + lax.div(whole - size, jnp.int32(2)))
    if not whole_numbers:
        return own.astype(jnp.float32) / total.astype(jnp.float32)
    found, rest = jnp.zeros_like(own), own
    for bits in _BITS:
        rest = rest * (1 << bits)
        quotient = lax.div(rest, jnp.broadcast_to(total, rest.shape))
        found, rest = found * (1 << bits) + quotient, rest - quotient * total
    return found + (2 * rest >= total)


def _gray(images: Array, dtype: Any) -> Array:
    """Weighs red, green and blue; midway between two whole numbers it is the even one."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return jnp.sum(images * jnp.float32(LUMA / 1000), axis=3, keepdims=True)
    total = jnp.sum(images.astype(jnp.int32) * jnp.int32(LUMA), axis=3, keepdims=True)
    gray = lax.div(total, jnp.int32(1000))
    twice = 2 * (total - 1000 * gray)
    odd = gray - 2 * lax.div(gray, jnp.int32(2)) == 1
    return gray + ((twice > 1000) | ((twice == 1000) & odd))
