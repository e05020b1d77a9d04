"""Speckle: the multiplicative noise of coherent sensors, such as radar."""

import jax
import jax.numpy as jnp

from jaxatr.data.augmentations.augmentation import Augmentation, Option
from jaxatr.typing import Array, Float, Shaped


def speckle(
    keys: Shaped[Array, " b"], images: Float[Array, "b h w c"], looks: int, of: str = "intensity"
) -> Float[Array, "b h w c"]:
    r"""Multiplies each pixel by speckle of mean 1.

    The intensity averaged over :math:`L` looks is the true intensity times gamma noise of shape
    :math:`L` and mean 1 (variance :math:`1/L`), i.e. the mean of :math:`L` exponential variables;
    an amplitude is multiplied by its square root (Goodman 1976, "Some fundamental properties of
    speckle"). The channels of a pixel share one draw, so that a gray image in three channels stays
    gray; of two bands, or more than three, such as those of polarised radar, each has its own.

    Args:
      keys: one per image.
      images: in raw units.
      looks: :math:`L`, the number of looks.
      of: ``"intensity"`` or ``"amplitude"``, the quantity the pixels hold.
    """
    _, height, width, bands = images.shape
    draws = 1 if bands in (1, 3) else bands

    def draw(key: Array) -> Array:
        return jnp.mean(jax.random.exponential(key, (looks, height, width, draws)), axis=0)

    noise = jax.vmap(draw)(keys)
    return images * (jnp.sqrt(noise) if of == "amplitude" else noise)


PART = Augmentation(
    speckle,
    {
        "speckle": Option(
            0,
            "multiply by speckle of this number of looks, for radar (Goodman 1976); 1 is the "
            "strongest, 0: off",
            lambda value: value >= 0 and value == int(value),
            "0 (off) or a whole number of looks",
        ),
        "speckle_of": Option(
            "amplitude",
            "the quantity the radar's pixels hold: `amplitude` or `intensity`",
            lambda value: value in ("amplitude", "intensity"),
            "'amplitude' or 'intensity'",
        ),
    },
    place=30,
    units="raw",
)
