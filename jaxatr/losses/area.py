"""A prior on how much of an image a saliency map marks.

Fong, Patrick and Vedaldi (2019), "Understanding Deep Networks via Extremal Perturbations and Smooth
Masks", section 3.2. The L1 norm makes every pixel smaller; this asks for a map that is 1 on a given
share of the pixels and 0 on the others, and leaves open on which.
"""

import chex
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def saliency_area(saliency: Float[ArrayLike, "b h w"], share: float) -> Float[Array, " b"]:
    r"""Returns how far each map is from marking just a share of the pixels.

    .. math:: \frac{1}{hw} \| \mathrm{sort}(H_x) - r_a \|^2

    where :math:`r_a` has :math:`1 - a` of its entries at 0 and the others, the last ones, at 1. The
    paper sums; the mean does not depend on the resolution.

    Args:
      saliency: ``[b, h, w]`` in [0, 1].
      share: :math:`a`, of the pixels, from 0 to 1; a whole number of pixels is made of it.

    Raises:
      ValueError: the share is out of range.

    >>> half = jnp.array([[[0.0, 1.0], [1.0, 0.0]]])
    >>> float(saliency_area(half, 0.5)[0]), float(saliency_area(half, 0.25)[0])
    (0.0, 0.25)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share: got {share}, wanted 0 to 1")
    saliency = at_least_float32(saliency)
    chex.assert_rank(saliency, 3)
    rising = jnp.sort(saliency.reshape(len(saliency), -1), axis=1)
    pixels = rising.shape[1]
    wanted = jnp.arange(pixels) >= pixels - round(share * pixels)
    return jnp.mean(jnp.square(rising - wanted), axis=1)
