"""Background suppression: replaces the target's surroundings in some images."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def centre_window(
    height: int, width: int, share: float, edge: float = 0.0
) -> Float[np.ndarray, "h w"]:
    """Returns the weights of a centred window: 1 inside, 0 far outside.

    Args:
      height: the image's height in pixels.
      width: the image's width in pixels.
      share: the window's height and width as shares of the image's.
      edge: width of the raised-cosine transition outside the window, as a share of the image's
        sides; 0 is a hard edge.
    """

    def along(length: int) -> np.ndarray:
        beyond = np.abs(np.arange(length) - (length - 1) / 2) - share * length / 2
        if not edge:
            return (beyond <= 0).astype(np.float32)
        fallen = np.clip(beyond / (edge * length), 0, 1)
        return ((1 + np.cos(np.pi * fallen)) / 2).astype(np.float32)

    return np.outer(along(height), along(width))


def suppress_background(
    keys: Shaped[Array, " b"],
    images: Float[Array, "b h w c"],
    probability: float,
    share: float,
    edge: float,
) -> Float[Array, "b h w c"]:
    """Replaces everything outside a centred window by the training mean, in some of the images.

    Args:
      keys: one per image.
      images: normalised, so that the training mean is 0.
      probability: probability that an image's background is replaced.
      share: the window's height and width as shares of the image's.
      edge: width of the window's soft edge, as a share of the image's sides; 0 is a hard edge.
    """
    _, height, width, _ = images.shape
    window = jnp.asarray(centre_window(height, width, share, edge))[None, :, :, None]
    chosen = jax.vmap(lambda key: jax.random.bernoulli(key, probability))(keys)
    return jnp.where(chosen[:, None, None, None], images * window, images)


def _share(value: float) -> bool:
    return 0 <= value <= 1


PART = Augmentation(
    suppress_background,
    {
        "background": Option(
            0.0,
            "probability that everything outside a centre window becomes the training mean",
            _share,
            "a probability in [0, 1]",
        ),
        "background_window": Option(
            0.75, "height and width of that window, as a share of the chip's", _share, "a share"
        ),
        "background_edge": Option(
            0.0,
            "share of the chip's sides over which the window falls to 0; 0: a hard edge",
            _share,
            "a share in [0, 1]",
        ),
    },
    place=-10,
)
