"""Shifts by parts of a pixel, as of a target that the pixels' grid does not follow."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.data.warp import warp
from jaxatr.typing import Array, Float, Shaped


def shift_subpixel(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], largest: float
) -> Float[Array, "b h w c"]:
    """Returns images moved down and right by parts of a pixel, bilinearly interpolated.

    Args:
      keys: one per image.
      images: in any units.
      largest: both parts are uniform in ``[-largest, largest]``.
    """

    def one(key: Array, image: Array) -> Array:
        by = jax.random.uniform(key, (2,), minval=-largest, maxval=largest)
        return warp(image, jnp.eye(2), -by)

    return jax.vmap(one)(keys, images)


AUGMENTATION = Augmentation(
    shift_subpixel,
    {
        "subpixel": Option(
            0.0,
            "move by a number of pixels drawn uniformly from ± this, bilinearly interpolated; 0: "
            "off",
            lambda value: value >= 0,
            "0 (off) or more",
        )
    },
    place=10,
)
