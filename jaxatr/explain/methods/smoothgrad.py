"""SmoothGrad: the gradient, averaged over noisy copies of the image."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.explain.gradients import Channels, check_channels, over_channels, target_gradient
from jaxatr.explain.inputs import (
    Function,
    as_argument,
    check_at_least,
    checked_images,
    target_classes,
)
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.typing import Array, ArrayLike, Float, Int, Key


def smoothgrad(
    predict: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    key: Key,
    targets: Int[ArrayLike, " b"] | None = None,
    samples: int = 25,
    noise: float = 0.15,
    squared: bool = False,
    channels: Channels = "sum_of_abs",
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes the mean gradient of the target's logit over noisy copies (Smilkov et al. 2017).

    .. math::
      \frac{1}{n} \sum_{i=1}^{n} \nabla_x\, y(x + \epsilon_i), \qquad
      \epsilon_i \sim \mathcal{N}(0, \sigma^2), \qquad
      \sigma = \mathtt{noise} \cdot (\max x - \min x)

    The default n and noise are those of the authors' repository (the paper's figures use n = 50 and
    noise of 0.1 to 0.2). The plain mean follows the paper; the repository squares by default.

    Args:
      predict: maps images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      key: random key of the noise, which all images share up to their σ.
      targets: ``[b]``, classes; None for those predicted without noise.
      samples: n, number of gradients per image.
      noise: σ as a share of the image's range, over all of its channels.
      squared: average the squares of the gradients ("SmoothGrad-Squared", Hooker et al. 2019).
      channels: reduction over channels: ``"sum"``, with its sign; ``"abs_of_sum"``; or
        ``"sum_of_abs"``, which the authors show.
      raw: return the means themselves instead of scaling to [0, 1].

    Raises:
      ValueError: an argument is invalid.
    """
    check_channels(channels)
    check_at_least(1, samples=samples)
    if not noise >= 0:
        raise ValueError(f"noise: got {noise}, wanted a share of the range, at least 0")
    images, predict = checked_images(images), as_argument(predict)
    targets = target_classes(predict, images, targets)
    drawn = jax.random.normal(key, (samples, *images.shape[1:]), images.dtype)
    total = jnp.zeros(images.shape)
    for one in noise * drawn:
        total = _added(total, predict, images, targets, one, squared)
    return finished(over_channels(total / samples, channels), raw=raw)


@jax.jit
def _added(total, predict, images, targets, noise, squared) -> Float[Array, "b h w c"]:
    noise = noise[None] * jnp.ptp(images, axis=(1, 2, 3), keepdims=True)
    gradient = target_gradient(predict, images + noise, targets).astype(total.dtype)
    return total + jnp.where(squared, jnp.square(gradient), gradient)


PART = Method(
    "smoothgrad", "SmoothGrad", partial(smoothgrad, raw=True), draws=True, batching="ragged"
)
