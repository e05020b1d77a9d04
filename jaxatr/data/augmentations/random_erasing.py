"""Random erasing (Zhong et al. 2020, "Random Erasing Data Augmentation")."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped

_LEAST, _FLATTEST = 0.02, 0.3  # s_l and r_1 of the paper's table


def erase(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    probability: float,
    largest: float = 0.4,
) -> Float[Array, "b h w c"]:
    """Replaces a rectangle by random pixels in some of the images (algorithm 1).

    The rectangle's area is uniform in ``[0.02, largest]`` of the image's area and its ratio of
    height to width in ``[0.3, 1 / 0.3]``; its position is uniform within the image. A side that
    exceeds the image's is clipped, whereas the paper draws again.

    Args:
      keys: one per image.
      images: normalised; the random pixels are normal with mean 0 and deviation 1, like the images.
      probability: probability that an image is changed.
      largest: the rectangle's largest area, as a share of the image's.
    """
    _, height, width, channels = images.shape

    def one(key: Array, image: Array) -> Array:
        chance, size, shape, place, noise = jax.random.split(key, 5)
        area = height * width * jax.random.uniform(size, minval=_LEAST, maxval=largest)
        ratio = jax.random.uniform(shape, minval=_FLATTEST, maxval=1 / _FLATTEST)
        rows = jnp.clip(jnp.round(jnp.sqrt(area * ratio)), 1, height)
        columns = jnp.clip(jnp.round(jnp.sqrt(area / ratio)), 1, width)
        down, right = jax.random.uniform(place, (2,))
        top = jnp.floor(down * (height - rows + 1))
        left = jnp.floor(right * (width - columns + 1))
        y, x = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
        inside = (y >= top) & (y < top + rows) & (x >= left) & (x < left + columns)
        inside &= jax.random.bernoulli(chance, probability)
        return jnp.where(inside, jax.random.normal(noise, (height, width, channels)), image)

    return jax.vmap(one)(keys, images)


PART = Augmentation(
    erase,
    {
        "erase": Option(
            0.0,
            "probability that a rectangle becomes random pixels (Zhong et al. 2020)",
            lambda value: 0 <= value <= 1,
            "a probability in [0, 1]",
        ),
        "erase_area": Option(
            0.4,
            "largest area of that rectangle, as a share of the chip's; the smallest is 0.02",
            lambda value: _LEAST <= value <= 1,
            "a share in [0.02, 1]",
        ),
    },
    place=70,
)
