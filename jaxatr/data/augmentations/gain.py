"""Gain: varies the sensor's sensitivity from image to image."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def gain(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], largest: float
) -> Float[Array, "b h w c"]:
    """Multiplies each image by a factor that is log-uniform in ``[1 / largest, largest]``.

    Args:
      keys: one per image.
      images: in raw units.
      largest: the largest factor, at least 1.
    """
    exponent = jax.vmap(lambda key: jax.random.uniform(key, minval=-1.0, maxval=1.0))(keys)
    return images * jnp.exp(exponent * jnp.log(largest))[:, None, None, None]


PART = Augmentation(
    gain,
    {
        "gain": Option(
            0.0,
            "multiply the raw image by a factor, log-uniform from one over this value to this "
            "value",
            lambda value: value == 0 or value >= 1,
            "0 (off), or 1 or more",
        )
    },
    place=40,
    units="raw",
)
