"""RandAugment (Cubuk et al. 2020): operations drawn at random, all of one strength.

The operations are Pillow's, on floats: an image is brought from its own smallest and largest value
to 0 and 1, changed, and brought back, so that chips of any unit can be varied. Where Pillow leaves
black behind, the image is mirrored. An operation on colours is among them for three channels only.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.data.warp import warp
from jaxatr.typing import Array, Float, Int, Shaped

HIGHEST = 30.0
"""The magnitude of the strongest form of the operations."""

_DEGREES, _SHEAR, _TRANSLATION, _ENHANCEMENT = 30.0, 0.3, 150 / 331, 0.9
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13

Image = Float[Array, "h w c"]


def rand_augment(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    operations: int,
    magnitude: float = 9.0,
) -> Float[Array, "b h w c"]:
    """Returns images after some operations, drawn with replacement, each image's its own.

    Args:
      keys: one per image.
      images: in raw units, 1 or 3 channels.
      operations: N of the paper, how many.
      magnitude: M, from 0 to 30, as torchvision and timm count it. Where an operation has a
        direction (a turn to the left, more contrast or less), it is drawn.
    """
    changes = [*PHOTOMETRIC, *([colour] if images.shape[-1] == 3 else [])]
    names = len(changes) + _GEOMETRIC
    level = magnitude / HIGHEST

    def once(key: Array, image: Array) -> Array:
        which, direction = jax.random.split(key)
        index = jax.random.randint(which, (), 0, names)
        signed = jnp.where(jax.random.bernoulli(direction), level, -level)
        return operate(image, changes, index, level, signed)

    def one(key: Array, image: Array) -> Array:
        least, most = jnp.min(image), jnp.max(image)
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
    """Returns an image of values in [0, 1] after one operation, in [0, 1] too.

    Args:
      unit: the image.
      changes: the operations on values.
      index: which of them, or, counted on from their end: shear of the columns, of the rows, turn,
        shift across, shift down.
      level: strength in [0, 1].
      signed: the same with the direction as its sign.
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
    """Returns the map of one of the five geometric operations, as :func:`warp` takes it."""
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
    """Returns the image."""
    del level, signed
    return unit


def auto_contrast(unit: Image, level: Array, signed: Array) -> Image:
    """Returns each channel stretched to [0, 1]; a single one is already."""
    del level, signed
    least, most = jnp.min(unit, axis=(0, 1)), jnp.max(unit, axis=(0, 1))
    return jnp.where(most > least, (unit - least) / jnp.where(most > least, most - least, 1), unit)


def equalize(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the ranks of a channel's values, from 0 to 1, after they are put into 256 bins."""
    del level, signed
    last = unit[..., 0].size - 1

    def channel(values: Array) -> Array:
        bins = jnp.minimum(jnp.floor(values * 256), 255).astype(jnp.int32)
        counts = jnp.zeros(256).at[bins].add(1.0)
        ranks = jnp.cumsum(counts) - (counts + 1) / 2  # of a bin's values, their mean
        return ranks[bins] / max(last, 1)

    return jax.vmap(channel, in_axes=2, out_axes=2)(unit)


def solarize(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image with all values above a threshold inverted: the brightest, then more."""
    del signed
    return jnp.where(unit > 1 - level, 1 - unit, unit)


def posterize(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image in fewer steps: 8 bits, at the strongest 4."""
    del signed
    steps = 2.0 ** (8 - jnp.round(4 * level))
    return jnp.minimum(jnp.floor(unit * steps), steps - 1) / (steps - 1)


def brightness(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image times a factor."""
    del level
    return unit * (1 + _ENHANCEMENT * signed)


def contrast(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image nearer to its mean gray, or farther."""
    del level
    return _blend(jnp.mean(_gray(unit)), unit, signed)


def sharpness(unit: Image, level: Array, signed: Array) -> Image:
    """Returns the image nearer to a smoothed form of it, or farther; the border stays."""
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
    """Returns the image nearer to gray, or farther."""
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
"""The operations on the values of an image of one channel."""


def _gray(unit: Image) -> Float[Array, "h w 1"]:
    if unit.shape[-1] == 3:
        return jnp.sum(unit * _LUMA, axis=-1, keepdims=True)
    return jnp.mean(unit, axis=-1, keepdims=True)


def _blend(without: Array, unit: Image, signed: Array) -> Image:
    return without + (1 + _ENHANCEMENT * signed) * (unit - without)


AUGMENTATION = Augmentation(
    rand_augment,
    {
        "rand_operations": Option(
            0,
            "RandAugment's N (Cubuk et al. 2020): operations drawn for each image; 0: off",
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
