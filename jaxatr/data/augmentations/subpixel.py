"""Sub-pixel shifts: varies the target's position on the pixel grid."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.data.warp import warp
from jaxatr.typing import Array, Float, Shaped


def shift_subpixel(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], largest: float
) -> Float[Array, "b h w c"]:
    """Shifts each image down and right by fractions of a pixel, with bilinear interpolation.

    Args:
      keys: one per image.
      images: in any units.
      largest: both shifts are uniform in ``[-largest, largest]``, in pixels.
    """

    def one(key: Array, image: Array) -> Array:
        by = jax.random.uniform(key, (2,), minval=-largest, maxval=largest)
        return warp(image, jnp.eye(2), -by)

    return jax.vmap(one)(keys, images)


PART = Augmentation(
    shift_subpixel,
    {
        "subpixel": Option(
            0.0,
            "shift by up to ± this many pixels, bilinearly interpolated",
            lambda value: value >= 0,
            "0 (off) or more",
        )
    },
    place=10,
)
