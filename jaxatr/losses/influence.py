"""A loss for learning saliency maps like those of RISE from random masks; not from any paper.

RISE (Petsiuk et al. 2018) averages thousands of random masks of one image, weighted by the target
network's score under each. Here a network that produces maps is fitted to a few masks of each
image, drawn at every step; it averages over the steps and over similar images. The target network
needs no gradient.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def influence(
    saliency: Float[ArrayLike, "b h w"],
    masks: Float[ArrayLike, "b n h w"],
    scores: Float[ArrayLike, "b n"],
    *,
    contrast: float = 4.0,
) -> Float[Array, " b"]:
    r"""Computes the mean squared deviation of each map from the evidence of its masks.

    .. math::
      \frac{1}{n h w} \sum_{i=1}^{n}
      \Bigl\| a (2 M_i - 1) (s_i - \bar{s}) - \bigl(H - \tfrac12\bigr) \Bigr\|^2

    In expectation over masks that keep each pixel with probability 1/2, the minimum is at
    :math:`H = \frac12 + a \frac{n - 1}{n} \mathrm{E}[(2M - 1) s]`: a pixel's value is above 1/2 if
    the score is higher when the pixel is kept. This gives RISE's order of the pixels without RISE's
    offset, which is the same for all pixels and would only add noise.

    Args:
      saliency: ``[b, h, w]`` in [0, 1], H.
      masks: ``[b, n, h, w]`` in [0, 1], M, 1 where a pixel is kept.
      scores: ``[b, n]``, s, the score to explain, high under masks that keep the relevant pixels;
        no gradient reaches it.
      contrast: a. Increase it if scores differ little, so that the map spans [0, 1].

    Raises:
      ValueError: there are fewer than two masks of each image.

    >>> left = jnp.array([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    >>> map_of = lambda m: influence(m, left, jnp.array([[0.75, 0.25]]), contrast=2.0)
    >>> float(map_of(jnp.array([[[1.0, 0.0]]]))[0]), float(map_of(jnp.array([[[0.0, 1.0]]]))[0])
    (0.0, 1.0)
    """
    saliency, masks = at_least_float32(saliency), at_least_float32(masks)
    scores = jax.lax.stop_gradient(at_least_float32(scores))
    chex.assert_rank([saliency, scores], [3, 2])
    chex.assert_shape(masks, (*scores.shape, *saliency.shape[1:]))
    if scores.shape[1] < 2:
        raise ValueError(f"masks: got {scores.shape[1]} of each image, wanted at least 2")
    above = scores - jnp.mean(scores, axis=1, keepdims=True)
    wanted = contrast * (2 * masks - 1) * above[:, :, None, None]
    return jnp.mean(jnp.square(wanted - (saliency[:, None] - 0.5)), axis=(1, 2, 3))
