"""Random geometric augmentation on the device; each draw depends on the example and epoch only.

Borders are filled by reflection (the edge pixel is not repeated): black corners would reveal the
rotation angle to the network.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.data import augmentations
from jaxatr.typing import Array, Bool, Float, Int, Key, Shaped


def augment(
    key: Key,
    images: Shaped[Array, "b h w c"],
    ids: Int[Array, " b"],
    epochs: Int[Array, " b"],
    *,
    rotate_degrees: float = 0.0,
    flip_horizontal: bool = False,
    flip_vertical: bool = False,
    shift: int = 0,
    box_shift: float = 0.0,
    box_scale: float = 0.0,
    shape: tuple[int, int] | None = None,
    boxes: Int[Array, " b"] | None = None,
    mean: Any = 0.0,
    std: Any = 1.0,
    **further: Any,
) -> Float[Array, "b y x c"]:
    """Flips, shifts and rotates each image by its own random amounts, in that order.

    The augmentations of :mod:`jaxatr.data.augmentations` are applied before or after these steps.

    The random amounts depend on ``(key, id, epoch)`` only, neither on the place in the batch nor on
    the other images, so the result is the same on any number of devices. With ``box_shift`` or
    ``box_scale``, the chip is cut out and rotated first, in one interpolation.

    Args:
      key: the run's random key.
      images: chips, optionally with their surroundings; integers count as floats.
      ids: example ids.
      epochs: the number of completed passes over the data before each example.
      rotate_degrees: the angle is uniform in ``[-rotate_degrees, rotate_degrees]``; 0 is off.
      flip_horizontal: mirror left to right with probability 1/2.
      flip_vertical: mirror top to bottom with probability 1/2.
      shift: whole-pixel shifts of rows and columns are uniform in ``[-shift, shift]``; 0 is off.
      box_shift: largest offset of the box's centre in each direction, as a share of the chip's
        longer side; 0 is off.
      box_scale: largest relative change of the box's side length; 0 is off.
      shape: rows and columns of the chip at the image's centre; by default the whole image.
      boxes: ids that seed the box offsets; by default ``ids``.
      mean: per-channel mean that was subtracted from the images, for augmentations on raw units.
      std: per-channel standard deviation that the images were divided by.
      further: options of :data:`jaxatr.data.augmentations.AUGMENTATIONS`.

    Raises:
      ValueError: an option in ``further`` does not exist.
    """
    # Differences of unsigned integers wrap around.
    images = images.astype(jnp.promote_types(images.dtype, jnp.float32))
    chip = (images.shape[1], images.shape[2]) if shape is None else shape
    boxes = ids if boxes is None else boxes
    units = {"mean": mean, "std": std}

    def draw(example: Array, epoch: Array, box: Array) -> tuple[Array, Array, Array, Array]:
        own = _own_key(key, example, epoch)
        flip_key, shift_key, angle_key = jax.random.split(own, 3)
        box_key = jax.random.fold_in(_own_key(key, box, epoch), 3)  # the split uses 0 to 2
        return (
            jax.random.bernoulli(flip_key, shape=(2,)),
            jax.random.randint(shift_key, (2,), -shift, shift + 1),
            jax.random.uniform(angle_key, minval=-1.0, maxval=1.0),
            jax.random.uniform(box_key, (3,), minval=-1.0, maxval=1.0),
        )

    flips, shifts, angles, errors = jax.vmap(draw)(ids, epochs, boxes)
    flips &= jnp.array([flip_vertical, flip_horizontal])
    radians = jnp.deg2rad(rotate_degrees) * angles
    recut = bool(box_shift or box_scale)
    if recut:
        offsets = box_shift * max(chip) * errors[:, :2]
        images = cut(images, radians, offsets, 1 + box_scale * errors[:, 2], chip)
    else:
        images = _middle(images, chip)
    images = augmentations.vary(key, images, ids, epochs, further, first=True, **units)
    if flip_horizontal or flip_vertical or shift:
        images = flip_and_shift(images, flips, shifts)
    if rotate_degrees and not recut:
        images = rotate(images, radians)
    return augmentations.vary(key, images, ids, epochs, further, first=False, **units)


def _own_key(key: Key, example: Array, epoch: Array) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, example), epoch)


def _middle(images: Array, shape: tuple[int, int]) -> Array:
    top, left = (images.shape[1] - shape[0]) // 2, (images.shape[2] - shape[1]) // 2
    return images[:, top : top + shape[0], left : left + shape[1]]


def flip_and_shift(
    images: Float[Array, "b h w c"], flips: Bool[Array, "b 2"], shifts: Int[Array, "b 2"]
) -> Float[Array, "b h w c"]:
    """Mirrors the chosen images, then shifts each down and right by whole pixels.

    Args:
      images: chips.
      flips: whether to mirror top to bottom, and left to right.
      shifts: rows and columns to shift by.
    """

    def sources(length: int, flip: Array, by: Array) -> Array:
        source = _reflect(jnp.arange(length) - by[:, None], length)
        return jnp.where(flip[:, None], length - 1 - source, source)

    rows = sources(images.shape[1], flips[:, 0], shifts[:, 0])
    columns = sources(images.shape[2], flips[:, 1], shifts[:, 1])
    return jax.vmap(lambda image, row, column: image[row][:, column])(images, rows, columns)


def rotate(images: Float[Array, "b h w c"], radians: Float[Array, " b"]) -> Float[Array, "b h w c"]:
    """Rotates each image counter-clockwise about its centre, with bilinear interpolation."""
    _, height, width, _ = images.shape
    y, x = _about_the_centre(height, width)

    def one(image: Array, angle: Array) -> Array:
        sine, cosine = jnp.sin(angle), jnp.cos(angle)
        row = cosine * y + sine * x + (height - 1) / 2
        column = cosine * x - sine * y + (width - 1) / 2
        return _interpolated(image, row, column)

    return jax.vmap(one)(images, radians)


def cut(
    images: Float[Array, "b h w c"],
    radians: Float[Array, " b"],
    offsets: Float[Array, "b 2"],
    scales: Float[Array, " b"],
    shape: tuple[int, int],
) -> Float[Array, "b y x c"]:
    """Cuts a rotated chip out of each image, with bilinear interpolation.

    Args:
      images: the images to cut from.
      radians: counter-clockwise rotation of the chip's content.
      offsets: rows and columns, in pixels, from the image's centre to the chip's centre.
      scales: image pixels per chip pixel.
      shape: rows and columns of the chips.
    """
    _, height, width, _ = images.shape
    y, x = _about_the_centre(*shape)

    def one(image: Array, angle: Array, offset: Array, scale: Array) -> Array:
        sine, cosine = scale * jnp.sin(angle), scale * jnp.cos(angle)
        row = cosine * y + sine * x + (height - 1) / 2 + offset[0]
        column = cosine * x - sine * y + (width - 1) / 2 + offset[1]
        return _interpolated(image, row, column)

    return jax.vmap(one)(images, radians, offsets, scales)


def _about_the_centre(height: int, width: int) -> tuple[Array, Array]:
    y = jnp.arange(height, dtype=jnp.float32)[:, None] - (height - 1) / 2
    x = jnp.arange(width, dtype=jnp.float32)[None, :] - (width - 1) / 2
    return y, x


def _interpolated(image: Array, row: Array, column: Array) -> Array:
    height, width = image.shape[:2]
    top, left = jnp.floor(row), jnp.floor(column)
    down, right = (row - top)[..., None], (column - left)[..., None]
    rows = [_reflect(top.astype(int) + step, height) for step in (0, 1)]
    columns = [_reflect(left.astype(int) + step, width) for step in (0, 1)]
    flat = image.reshape(height * width, -1)
    (a, b), (c, d) = [[flat[r * width + s] for s in columns] for r in rows]
    above, below = a + right * (b - a), c + right * (d - c)
    return above + down * (below - above)


def _reflect(index: Array, length: int) -> Array:
    """Reflects positions into ``0 .. length - 1`` about the first and last index."""
    if length == 1:
        return jnp.zeros_like(index)
    period = 2 * (length - 1)
    index = jnp.abs(index) % period
    return jnp.minimum(index, period - index)
