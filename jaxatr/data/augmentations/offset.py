"""Offset: varies the sensor's level from image to image."""

import jax

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def offset(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], largest: float
) -> Float[Array, "b h w c"]:
    """Adds to each image a number that is uniform in ``[-largest, largest]``.

    Args:
      keys: one per image.
      images: normalised: the unit is the per-channel standard deviation of the training images.
      largest: the largest offset.
    """
    draw = jax.vmap(lambda key: jax.random.uniform(key, minval=-1.0, maxval=1.0))
    return images + largest * draw(keys)[:, None, None, None]


PART = Augmentation(
    offset,
    {
        "offset": Option(
            0.0,
            "add up to ± this, in standard deviations of the training images",
            lambda value: value >= 0,
            "0 (off) or more",
        )
    },
    place=50,
)
