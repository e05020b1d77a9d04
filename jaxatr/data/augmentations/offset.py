"""Offset: the sensor's level, another one for each image."""

import jax

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def offset(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], largest: float
) -> Float[Array, "b h w c"]:
    """Returns images plus a number that is uniform in ``[-largest, largest]``, each its own.

    Args:
      keys: one per image.
      images: normalised: the unit is the deviation of the training images, in each channel.
      largest: of the numbers.
    """
    draw = jax.vmap(lambda key: jax.random.uniform(key, minval=-1.0, maxval=1.0))
    return images + largest * draw(keys)[:, None, None, None]


AUGMENTATION = Augmentation(
    offset,
    {
        "offset": Option(
            0.0,
            "add a number drawn uniformly from ± this, in deviations of the training images; 0: "
            "off",
            lambda value: value >= 0,
            "0 (off) or more",
        )
    },
    place=50,
)
