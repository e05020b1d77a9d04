"""A differentiable estimate of the insertion and deletion measures; not from any paper.

Equation 8 of Lee and Kim (2021) asks that an image masked by its saliency map be classified like
the image itself. Insertion and deletion ask for more: for *every* share of the pixels, the most
salient ones must be enough to recognise the class, and the class must be lost without them. With a
random share for each image and step, the two functions here give a differentiable estimate of 1
minus the area under the insertion curve plus the area under the deletion curve.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32, class_indices
from jaxatr.typing import Array, ArrayLike, Float, Int

_LEAST_DEVIATION = 0.01


def top_share(
    saliency: Float[ArrayLike, "b h w"], share: Float[ArrayLike, " b"], *, softness: float = 0.1
) -> Float[Array, "b h w"]:
    r"""Computes a soft mask of the most salient pixels.

    .. math:: \sigma\left(\frac{H - t}{\beta \max(\mathrm{sd}(H), 0.01)}\right)

    where the threshold t is the lowest saliency of the selected pixels. No gradient flows through t
    or the deviation, since only the order of the pixels matters. The lower bound on the deviation
    is meant for maps in [0, 1]: it limits the slope to 1 / (0.04 β) where a map is nearly flat. A
    constant map has no order and no gradient.

    Args:
      saliency: ``[b, h, w]``.
      share: ``[b]``, share of the pixels to select, from 0 to 1.
      softness: β, in units of the map's standard deviation, which counts as at least 0.01.

    Raises:
      ValueError: the softness is not positive.

    >>> rising = jnp.arange(4.0).reshape(1, 2, 2)
    >>> jnp.round(top_share(rising, jnp.array([0.5]), softness=0.01), 2)
    Array([[[0. , 0. ],
            [0.5, 1. ]]], dtype=float32)
    """
    if not softness > 0:
        raise ValueError(f"softness: got {softness}, wanted more than 0")
    saliency, share = at_least_float32(saliency), at_least_float32(share)
    chex.assert_rank(saliency, 3)
    chex.assert_shape(share, (len(saliency),))
    flat = jax.lax.stop_gradient(saliency.reshape(len(saliency), -1))
    falling = -jnp.sort(-flat, axis=1)
    place = jnp.round(share * flat.shape[1]).astype(int) - 1
    threshold = jnp.take_along_axis(falling, place.clip(0, None)[:, None], axis=1)[..., None]
    ordered = (falling[:, 0] > falling[:, -1])[:, None, None]
    saliency = jnp.where(ordered, saliency, jax.lax.stop_gradient(saliency))
    spread = jnp.maximum(jnp.std(flat, axis=1), _LEAST_DEVIATION)[:, None, None]
    return jax.nn.sigmoid((saliency - threshold) / (softness * spread))


def faithfulness(
    inserted_logits: Float[ArrayLike, "b k"],
    erased_logits: Float[ArrayLike, "b k"],
    classes: Int[ArrayLike, " b"],
    *,
    insertion_weight: float = 1.0,
) -> Float[Array, " b"]:
    r"""Computes a saliency map's distance from perfect insertion and deletion, from 0 to 2.

    .. math:: \frac{2}{w + 1} \bigl(w (1 - p_c(\text{inserted})) + p_c(\text{erased})\bigr)

    Args:
      inserted_logits: ``[b, k]``, the target network's logits for the blurred image with a share of
        its most salient pixels inserted.
      erased_logits: ``[b, k]``, its logits for the image with these pixels removed.
      classes: ``[b]``, c, the classes predicted by the target network for the images.
      insertion_weight: w, 0 or more. With 1 the loss estimates 1 minus the difference of the
        measures. Deletion is easier to learn; a larger weight balances the two.

    >>> yes, no = jnp.array([[50.0, 0.0]]), jnp.array([[0.0, 50.0]])
    >>> round(float(faithfulness(yes, no, jnp.array([0]))[0]), 6)
    0.0
    """
    chex.assert_rank(inserted_logits, 2)
    chex.assert_equal_shape([inserted_logits, erased_logits])
    rows = jnp.arange(len(inserted_logits))
    classes = class_indices(classes, len(rows))
    inserted, erased = (
        jax.nn.softmax(at_least_float32(logits))[rows, classes]
        for logits in (inserted_logits, erased_logits)
    )
    return 2 / (insertion_weight + 1) * (insertion_weight * (1 - inserted) + erased)
