"""The geometry of a chip in operations that ONNX supports, rounding exactly as Pillow does.

Pillow's bilinear filter is a product with one matrix for the columns and one for the rows. For
8-bit images its weights are multiples of :math:`2^{-22}`, and each product is rounded to 8 bits;
here integers are used throughout, so the chip is bit-exact. The image's sizes may be symbols of
:mod:`jax.export`.
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from PIL import Image

from jaxatr.data.chip import Chip, margin
from jaxatr.data.decoder.luma import LUMA
from jaxatr.typing import Array, Float, Shaped

_BITS = (8, 7, 7)  # a weight's bits, computed in steps: 32 bits hold no larger dividend
_ONE = 1 << sum(_BITS)


def traced_chips(
    chip: Chip, images: Shaped[Array, "b h w c"], shape: tuple[int, int, int]
) -> Float[Array, "b y x d"]:
    """Computes the chips of equally sized images, as :class:`Chip` does for one image, in float32.

    An image's side may be up to about 2,900 times the square root of the chip's side. If no step
    changes the size, it has to be the chip's. An exported graph refuses images that :class:`Chip`
    would refuse, or whose chips have another shape, by an index that is out of bounds.

    Args:
      chip: the geometry.
      images: uint8, uint16 or float32.
      shape: ``(y, x, d)`` of the chips.

    Raises:
      ValueError: the images' sizes are numbers and their chips have another shape.
    """
    dtype = images.dtype
    if all(isinstance(size, int) for size in images.shape[1:]):
        made = chip.output_shape(images.shape[1:])
        if made != tuple(shape):
            raise ValueError(f"images of {images.shape[1:]} give chips of {made}, wanted {shape}")
    if chip.choice is not None:
        planes = [images[..., number : number + 1] for number in chip.choice.numbers]
        images = jnp.concatenate(planes, axis=3)
    if chip.blank_center:
        images = _blanked(images, chip.blank_center)
    if chip.center_crop:
        for axis in (1, 2):
            size, side = images.shape[axis], chip.center_crop
            places = jnp.arange(side) + margin(size, side)
            images = _picked(images, places, axis, allowed=jnp.int32(size) >= side)
    if chip.size:
        images = _resized(images, shape[:2], dtype, square=chip.square)
    elif chip.square:
        images = _padded(images, shape[0])
    if images.shape[3] != shape[2]:
        images = _gray(images, dtype) if shape[2] == 1 else jnp.repeat(images, 3, axis=3)
    return images.astype(jnp.float32)


def _blanked(images: Array, side: int) -> Array:
    images = images.astype(jnp.float32)  # holds 16 bits; every runtime supports where() on it
    inside = []
    for size in images.shape[1:3]:
        top = jnp.maximum(margin(size, side), 0)
        places = jnp.arange(size)
        inside.append((places >= top) & (places < top + side))
    rows, columns = inside
    return jnp.where((rows[:, None] & columns)[:, :, None], 0, images)


def _picked(images: Array, places: Array, axis: int, *, allowed: Array) -> Array:
    """Returns the pixels at some places; if that is not allowed, the places are out of bounds."""
    places = jnp.where(allowed, places, images.shape[axis])
    pixels = jnp.moveaxis(images, axis, 0).at[places]
    found = pixels.get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.moveaxis(found, 0, axis)


def _padded(images: Array, side: int) -> Array:
    """Pads to a square with zeros, each of which is one pixel beyond the image's edges."""
    sizes = [jnp.int32(size) for size in images.shape[1:3]]
    longest = jnp.maximum(*sizes)
    images = jnp.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))
    for axis, size in enumerate(sizes, start=1):
        places = jnp.arange(side) - margin(longest, size)
        places = jnp.where((places >= 0) & (places < size), places, size)
        images = _picked(images, places, axis, allowed=longest == side)
    return images


def _resized(images: Array, shape: tuple[int, ...], dtype: Any, *, square: bool) -> Array:
    """Resizes like Pillow, padding to a square with zeros first if asked to."""
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
    """Whether the installed Pillow resizes the rows of tall images first, as version 13 does.

    The order affects the rounding between the two products.
    """
    noise = np.random.default_rng(0).integers(0, 256, (90, 10), np.uint8)
    image, bilinear = Image.fromarray(noise), Image.Resampling.BILINEAR
    resized = np.asarray(image.resize((9, 9), bilinear))
    rows_first = image.resize((10, 9), bilinear).resize((9, 9), bilinear)
    return np.array_equal(resized, np.asarray(rows_first))


def _weights(
    size: Any, side: int, longest: tuple[Any, ...], *, whole_numbers: bool
) -> Shaped[Array, "n m"]:
    """Computes the weight of each of ``size`` image pixels in each of ``side`` chip pixels.

    The filter's values are fractions with a common denominator, so that integers hold them.

    Args:
      size: the image's side.
      side: the chip's side.
      longest: sizes of which the largest is the padded image's side.
      whole_numbers: return integers in units of 1 / :data:`_ONE`, rounded as Pillow does.
    """
    padded = jnp.int32(longest[0])
    for other in longest[1:]:
        padded = jnp.maximum(padded, jnp.int32(other))
    reach = 2 * jnp.maximum(padded, side)

    def shares(places: Array) -> Array:
        apart = (2 * places[:, None] + 1) * side - (2 * jnp.arange(side) + 1) * padded
        return jnp.maximum(reach - jnp.abs(apart), 0)

    everywhere = jnp.arange(sum(longest))  # at least the padded image's side
    inside = (everywhere < padded)[:, None]
    total = jnp.sum(jnp.where(inside, shares(everywhere), 0), axis=0)
    own = shares(jnp.arange(size) + margin(padded, size))
    if not whole_numbers:
        return own.astype(jnp.float32) / total.astype(jnp.float32)
    found, rest = jnp.zeros_like(own), own
    for bits in _BITS:
        rest = rest * (1 << bits)
        quotient = lax.div(rest, jnp.broadcast_to(total, rest.shape))
        found, rest = found * (1 << bits) + quotient, rest - quotient * total
    return found + (2 * rest >= total)


def _gray(images: Array, dtype: Any) -> Array:
    """Converts RGB to gray by its luma; ties are rounded to even."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return jnp.sum(images * jnp.float32(LUMA / 1000), axis=3, keepdims=True)
    total = jnp.sum(images.astype(jnp.int32) * jnp.int32(LUMA), axis=3, keepdims=True)
    gray = lax.div(total, jnp.int32(1000))
    twice = 2 * (total - 1000 * gray)
    odd = gray - 2 * lax.div(gray, jnp.int32(2)) == 1
    return gray + ((twice > 1000) | ((twice == 1000) & odd))
