"""Dropped pixels: simulates dead detector elements."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def drop_pixels(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], share: float
) -> Float[Array, "b h w c"]:
    """Drops each pixel independently with a given probability.

    A dropped pixel takes the smallest value of its image in each channel.

    Args:
      keys: one per image.
      images: in any units.
      share: probability that a pixel is dropped.
    """
    shape = (*images.shape[1:3], 1)
    dead = jax.vmap(lambda key: jax.random.bernoulli(key, share, shape))(keys)
    return jnp.where(dead, jnp.min(images, axis=(1, 2), keepdims=True), images)


PART = Augmentation(
    drop_pixels,
    {
        "dropped_pixels": Option(
            0.0,
            "share of the pixels that take their image's smallest value",
            lambda value: 0 <= value < 1,
            "a share in [0, 1)",
        )
    },
    place=60,
)
