"""RandAugment (Cubuk et al. 2020): randomly drawn operations of equal strength.

The operations are those of Pillow, on floats: each image's value range is mapped to [0, 1] before
an operation and back after it, so that chips of any unit can be varied. Where Pillow leaves black
borders, the image is mirrored. Colour operations are used for images of three channels only. Of
more or two bands, which may have different units, each has its own range and its own mean.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.data.decoder.luma import LUMA
from jaxatr.data.warp import warp
from jaxatr.typing import Array, Float, Int, Shaped

HIGHEST = 30.0
"""The magnitude at which the operations are strongest."""

_DEGREES, _SHEAR, _TRANSLATION, _ENHANCEMENT = 30.0, 0.3, 150 / 331, 0.9
_SEEN = (1, 3)  # channels of gray and RGB, which share their unit
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13

Image = Float[Array, "h w c"]


def rand_augment(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    operations: int,
    magnitude: float = 9.0,
) -> Float[Array, "b h w c"]:
    """Applies randomly drawn operations to each image, with replacement.

    Args:
      keys: one per image.
      images: in raw units.
      operations: the paper's N, the number of operations per image.
      magnitude: the paper's M, from 0 to 30 as in torchvision and timm. Where an operation has two
        directions (rotation to either side, more or less contrast), one is drawn.
    """
    changes = [*PHOTOMETRIC, *([colour] if images.shape[-1] == 3 else [])]
    count = len(changes) + _GEOMETRIC
    level = magnitude / HIGHEST

    def once(key: Array, image: Array) -> Array:
        which, direction = jax.random.split(key)
        index = jax.random.randint(which, (), 0, count)
        signed = jnp.where(jax.random.bernoulli(direction), level, -level)
        return operate(image, changes, index, level, signed)

    def one(key: Array, image: Array) -> Array:
        axes = None if image.shape[-1] in _SEEN else (0, 1)
        least, most = jnp.min(image, axis=axes), jnp.max(image, axis=axes)
        span = jnp.where(most > least, most - least, 1.0)
        unit = (image - least) / span
        step = lambda number, unit: once(jax.random.fold_in(key, number), unit)  # noqa: E731
        return jax.lax.fori_loop(0, operations, step, unit) * span + least

    return jax.vmap(one)(keys, images)


def operate(
    unit: Image,
    changes: list[Callable[[Image, Array, Array], Image]],
    index: Int[Array, ""],
    level: float | Array,
    signed: Array,
) -> Image:
    """Applies one operation to an image with values in [0, 1], and clips the result to [0, 1].

    Args:
      unit: the image.
      changes: the photometric operations.
      index: which operation: a number of ``changes`` or, counting on from their end, column shear,
        row shear, rotation, horizontal shift, vertical shift.
      level: strength in [0, 1].
      signed: ``level`` with the direction as its sign.
    """
    count = len(changes)

    def moved(image: Array, level: Array, signed: Array) -> Array:
        del level
        return warp(image, *_affine(index - count, signed, *image.shape[:2]))

    chosen = jnp.minimum(index, count)
    changed = jax.lax.switch(chosen, [*changes, moved], unit, jnp.float32(level), signed)
    return jnp.clip(changed, 0, 1)


_GEOMETRIC = 5


def _affine(which: Array, signed: Array, height: int, width: int) -> tuple[Array, Array]:
    """Returns the matrix and shift of one of the five geometric operations, for :func:`warp`."""
    angle = jnp.deg2rad(_DEGREES) * signed
    sine, cosine, zero, one = jnp.sin(angle), jnp.cos(angle), 0 * signed, 1 + 0 * signed
    shear, far = _SHEAR * signed, _TRANSLATION * signed
    matrices = [
        [[one, zero], [shear, one]],  # columns move with the row
        [[one, shear], [zero, one]],
        [[cosine, sine], [-sine, cosine]],
        [[one, zero], [zero, one]],
        [[one, zero], [zero, one]],
    ]
    shifts = [[zero, zero]] * 3 + [[zero, far * width], [far * height, zero]]
    return jnp.array(matrices)[which], jnp.array(shifts)[which]


def identity(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image unchanged."""
    del level, signed
    return unit


def auto_contrast(unit: Image, level: Array, signed: Array) -> Image:
    """Stretches each channel to [0, 1]; with one channel, this changes nothing."""
    del level, signed
    least, most = jnp.min(unit, axis=(0, 1)), jnp.max(unit, axis=(0, 1))
    return jnp.where(most > least, (unit - least) / jnp.where(most > least, most - least, 1), unit)


def equalize(unit: Image, level: Array, signed: Array) -> Image:
    """Replaces the values of each channel by their ranks in 256 bins, scaled to [0, 1]."""
    del level, signed
    last = unit[..., 0].size - 1

    def channel(values: Array) -> Array:
        bins = jnp.minimum(jnp.floor(values * 256), 255).astype(jnp.int32)
        counts = jnp.zeros(256).at[bins].add(1.0)
        ranks = jnp.cumsum(counts) - (counts + 1) / 2  # the mean rank of each bin
        return ranks[bins] / max(last, 1)

    return jax.vmap(channel, in_axes=2, out_axes=2)(unit)


def solarize(unit: Image, level: Array, signed: Array) -> Image:
    """Inverts all values above a threshold that falls as the strength rises."""
    del signed
    return jnp.where(unit > 1 - level, 1 - unit, unit)


def posterize(unit: Image, level: Array, signed: Array) -> Image:
    """Quantises the image to 8 bits at strength 0, down to 4 bits at full strength."""
    del signed
    steps = 2.0 ** (8 - jnp.round(4 * level))
    return jnp.minimum(jnp.floor(unit * steps), steps - 1) / (steps - 1)


def brightness(unit: Image, level: Array, signed: Array) -> Image:
    """Multiplies the image by a factor."""
    del level
    return unit * (1 + _ENHANCEMENT * signed)


def contrast(unit: Image, level: Array, signed: Array) -> Image:
    """Moves the image towards or away from its mean gray, or other bands from their means."""
    del level
    return _blend(jnp.mean(_gray(unit), axis=(0, 1)), unit, signed)


def sharpness(unit: Image, level: Array, signed: Array) -> Image:
    """Moves the image towards or away from its smoothed version; the border is unchanged."""
    del level
    height, width, _ = unit.shape
    if min(height, width) < 3:
        return unit
    parts = [
        _SMOOTH[i, j] * unit[i : height - 2 + i, j : width - 2 + j]
        for i in range(3)
        for j in range(3)
    ]
    smooth = unit.at[1:-1, 1:-1].set(sum(parts))
    return _blend(smooth, unit, signed)


def colour(unit: Image, level: Array, signed: Array) -> Image:
    """Moves the image towards or away from its gray version."""
    del level
    return _blend(_gray(unit), unit, signed)


PHOTOMETRIC = [
    identity,
    auto_contrast,
    equalize,
    solarize,
    posterize,
    brightness,
    contrast,
    sharpness,
]
"""The photometric operations for images of any number of channels."""


def _gray(unit: Image) -> Float[Array, "h w d"]:
    """Returns the luma of colours, and other bands as they are."""
    if unit.shape[-1] == 3:
        return jnp.sum(unit * np.float32(LUMA / 1000), axis=-1, keepdims=True)
    return unit


def _blend(without: Array, unit: Image, signed: Array) -> Image:
    return without + (1 + _ENHANCEMENT * signed) * (unit - without)


PART = Augmentation(
    rand_augment,
    {
        "rand_operations": Option(
            0,
            "RandAugment's N (Cubuk et al. 2020): operations drawn for each image",
            lambda value: value >= 0 and value == int(value),
            "0 (off) or a whole number",
        ),
        "rand_magnitude": Option(
            9.0,
            "RandAugment's M, their strength, from 0 to 30",
            lambda value: 0 <= value <= HIGHEST,
            "0 to 30",
        ),
    },
    place=20,
    units="raw",
)
