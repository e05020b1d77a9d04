"""Grad-CAM: feature maps weighted by the mean gradient of the class in them."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxatr.explain.gradients import target_gradient
from jaxatr.explain.inputs import (
    Function,
    apply,
    as_argument,
    checked_images,
    checked_targets,
)
from jaxatr.explain.method import Method
from jaxatr.explain.scaling import finished
from jaxatr.typing import Array, ArrayLike, Float, Int

_SMALLEST = 8  # rows and columns of a feature map; coarser maps do not resolve a chip


def grad_cam(
    features: Function,
    head: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes Grad-CAM maps (Selvaraju et al. 2017, equations 1 and 2).

    .. math::
      \alpha_f = \frac{1}{pq} \sum_{ij} \frac{\partial y}{\partial A^f_{ij}}, \qquad
      L_{ij} = \operatorname{ReLU}\Big(\sum_f \alpha_f A^f_{ij}\Big)

    where y is the target's logit, before any softmax. The map is upsampled bilinearly. The cost is
    one forward pass, and one backward pass through ``head``.

    Args:
      features: maps images to feature maps ``[b, p, q, f]``.
      head: maps feature maps to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
      raw: return L itself instead of scaling to [0, 1].

    Raises:
      ValueError: the feature maps are below 8×8, or an argument is invalid.
    """
    return explained(_mean_gradient, features, head, images, targets, raw)


def explained(
    weigh: Callable[[Array, Array], Array],
    features: Function,
    head: Function,
    images: Float[ArrayLike, "b h w c"],
    targets: Int[ArrayLike, " b"] | None,
    raw: bool,
) -> Float[Array, "b h w"]:
    """Computes maps from weighted feature maps; the methods differ in their weights.

    Args:
      weigh: maps ``(maps, gradient)``, both ``[b, p, q, f]``, to weights ``[b, f]``.
      features: maps images to feature maps.
      head: maps feature maps to logits.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
      raw: do not scale to [0, 1].

    Raises:
      ValueError: the feature maps are below 8×8, or an argument is invalid.
    """
    images = checked_images(images)
    features, head = as_argument(features), as_argument(head)
    maps = apply.eval_shape(features, images)
    if maps.ndim != 4 or len(maps) != len(images) or min(maps.shape[1:3]) < _SMALLEST:
        raise ValueError(
            f"features: got shape {maps.shape}, wanted ({len(images)}, p, q, f), p and q at least "
            f"{_SMALLEST}; use an earlier stage of the network"
        )
    targets = checked_targets(head, maps, targets)
    return finished(_weighted(weigh, features, head, images, targets), raw=raw)


@partial(jax.jit, static_argnums=0)
def _weighted(
    weigh: Callable, features: Partial, head: Partial, images: Array, targets: Array | None
) -> Float[Array, "b h w"]:
    # By apply, which has traced both parts for their shapes.
    maps = apply(features, images)
    gradient = target_gradient(Partial(apply, head), maps, targets)
    maps = maps.astype(gradient.dtype)
    weights = weigh(maps, gradient)
    total = jnp.einsum("bpqf,bf->bpq", maps, weights, precision=jax.lax.Precision.HIGHEST)
    return jax.image.resize(jax.nn.relu(total), images.shape[:3], "bilinear")


def _mean_gradient(maps: Float[Array, "b p q f"], gradient: Float[Array, "b p q f"]) -> Array:
    return jnp.mean(gradient, axis=(1, 2))


PART = Method(
    "grad_cam", "Grad-CAM", partial(grad_cam, raw=True), aliases=("gradcam",), two_parts=True
)
