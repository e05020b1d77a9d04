"""Dropped pixels: single ones that the sensor has lost."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def drop_pixels(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], share: float
) -> Float[Array, "b h w c"]:
    """Returns images whose pixels are dead with a probability, each by itself.

    A dead pixel has, in every channel, the smallest value of its image there.

    Args:
      keys: one per image.
      images: in any units.
      share: probability that a pixel is dead.
    """
    shape = (*images.shape[1:3], 1)
    dead = jax.vmap(lambda key: jax.random.bernoulli(key, share, shape))(keys)
    return jnp.where(dead, jnp.min(images, axis=(1, 2), keepdims=True), images)


AUGMENTATION = Augmentation(
    drop_pixels,
    {
        "dropped_pixels": Option(
            0.0,
            "share of the pixels that are dead, and have their image's smallest value; 0: off",
            lambda value: 0 <= value < 1,
            "a share in [0, 1)",
        )
    },
    place=60,
)
