"""Integrated gradients: the gradient along the path from a baseline to the image."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.explain.gradients import Channels, check_channels, over_channels, target_gradient
from jaxatr.explain.inputs import (
    Baseline,
    Function,
    as_argument,
    check_at_least,
    checked_images,
    one_baseline,
    target_classes,
)
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float, Int


def integrated_gradients(
    predict: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    baseline: Baseline = 0.0,
    steps: int = 50,
    method: Literal["gausslegendre", "riemann"] = "gausslegendre",
    channels: Channels = "abs_of_sum",
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes integrated gradients (Sundararajan et al. 2017, equation 1).

    .. math::
      (x - x') \odot \int_0^1 \nabla_x\, y(x' + t (x - x'))\, dt

    where y is the target's logit. The integral is computed by Gauss-Legendre quadrature, captum's
    default, or by the sum of the paper's equation 3, at 1/m, 2/m … 1 (``"riemann"``, captum's
    ``riemann_right``). Up to the error of the integral, the attributions sum to
    :math:`y(x) - y(x')` over pixels and channels, and so does the raw map with ``channels="sum"``.

    Args:
      predict: maps images to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
      baseline: x', a number, ``[c]`` or ``[h, w, c]`` in the images' unit.
      steps: m, number of gradients per image.
      method: integration method, ``"gausslegendre"`` or ``"riemann"``.
      channels: reduction over channels: ``"sum"``, with its sign; ``"abs_of_sum"``, the pixel's
        importance regardless of sign; ``"sum_of_abs"``, in which channels cannot cancel.
      raw: return the attributions themselves instead of scaling to [0, 1].

    Raises:
      ValueError: an argument is invalid.
    """
    check_channels(channels)
    check_at_least(1, steps=steps)
    images, predict = checked_images(images), as_argument(predict)
    origin = one_baseline(baseline, images)
    points, weights = _quadrature(method, steps)
    targets = target_classes(predict, images, targets)
    gradient = jnp.zeros(images.shape)
    for point, weight in zip(points, weights, strict=True):
        gradient = _added(gradient, predict, images, origin, targets, point, weight)
    way = (at_least_float32(images) - at_least_float32(origin)[None]).astype(gradient.dtype)
    return finished(over_channels(way * gradient, channels), raw=raw)


def _quadrature(method: str, steps: int) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Computes quadrature points in [0, 1], and weights that sum to 1."""
    if method == "riemann":
        points, weights = np.arange(1, steps + 1) / steps, np.full(steps, 1 / steps)
    elif method == "gausslegendre":
        points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
        points, weights = (points + 1) / 2, weights / 2
    else:
        raise ValueError(f"method: got {method!r}, wanted 'gausslegendre' or 'riemann'")
    return points.astype(np.float32), weights.astype(np.float32)


@jax.jit
def _added(total, predict, images, origin, targets, point, weight) -> Float[Array, "b h w c"]:
    begin, end = at_least_float32(origin)[None], at_least_float32(images)
    there = (begin + point.astype(end.dtype) * (end - begin)).astype(images.dtype)
    gradient = target_gradient(predict, there, targets).astype(total.dtype)
    return total + weight.astype(total.dtype) * gradient


PART = Method(
    "integrated_gradients",
    "integrated gradients",
    partial(integrated_gradients, raw=True),
    batching="ragged",
)
