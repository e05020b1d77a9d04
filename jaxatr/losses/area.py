"""A prior on the area that a saliency map marks.

Fong, Patrick and Vedaldi (2019), "Understanding Deep Networks via Extremal Perturbations and Smooth
Masks", section 3.2. The L1 norm shrinks every pixel; this prior asks for a map that is 1 on a given
share of the pixels and 0 elsewhere, but leaves open which pixels.
"""

import chex
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def saliency_area(saliency: Float[ArrayLike, "b h w"], share: float) -> Float[Array, " b"]:
    r"""Computes how far each map is from marking exactly a given share of the pixels.

    .. math:: \frac{1}{hw} \| \mathrm{sort}(H_x) - r_a \|^2

    where :math:`r_a` is 0 in its first :math:`(1 - a) hw` entries and 1 in the rest. The paper sums
    over the pixels; the mean is independent of the resolution.

    Args:
      saliency: ``[b, h, w]`` in [0, 1].
      share: :math:`a`, the share of the pixels, from 0 to 1; rounded to a whole number of pixels.

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
    return jnp.mean(jnp.square(rising - wanted[None].astype(rising.dtype)), axis=1)
