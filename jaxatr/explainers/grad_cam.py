"""Grad-CAM and Grad-CAM++: feature maps weighted by what their gradients say of the class."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jaxatr.explainers.gradients import target_gradient
from jaxatr.explainers.inputs import (
    Function,
    apply,
    as_argument,
    checked_images,
    checked_targets,
)
from jaxatr.explainers.maps import finished
from jaxatr.typing import Array, ArrayLike, Float, Int

_SMALLEST = 8  # rows and columns of a feature map; a coarser one says too little about a chip


def grad_cam(
    features: Function,
    head: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Returns the Grad-CAM map (Selvaraju et al. 2017, equations 1 and 2).

    .. math::
      \alpha_f = \frac{1}{pq} \sum_{ij} \frac{\partial y}{\partial A^f_{ij}}, \qquad
      L_{ij} = \operatorname{ReLU}\Big(\sum_f \alpha_f A^f_{ij}\Big)

    where y is the target's logit, before any softmax. The map is enlarged bilinearly. One forward
    pass, and one backward pass through ``head``.

    Args:
      features: from images to feature maps ``[b, p, q, f]``.
      head: from feature maps to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted ones.
      raw: return L itself, not scaled to [0, 1].

    Raises:
      ValueError: the feature maps are below 8×8, or an argument does not fit.
    """
    return _explained(_mean_gradient, features, head, images, targets, raw)


def grad_cam_plus_plus(
    features: Function,
    head: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Returns the Grad-CAM++ map (Chattopadhay et al. 2018, equations 10, 11 and 19).

    .. math::
      \alpha^f_{ij} = \frac{(g^f_{ij})^2}{2 (g^f_{ij})^2 + (g^f_{ij})^3 \sum_{ab} A^f_{ab}}, \qquad
      w_f = \sum_{ij} \alpha^f_{ij} \operatorname{ReLU}(g^f_{ij}), \qquad
      L_{ij} = \operatorname{ReLU}\Big(\sum_f w_f A^f_{ij}\Big)

    with g the gradient of the target's logit S. The paper's score is exp(S), which makes this
    closed form and multiplies each map by exp(S): that factor, which can overflow, is left out of
    the raw map. α is 0 where its denominator is. The authors' code also divides the α of a feature
    map by their sum; the equations do not.

    Args:
      features: from images to feature maps ``[b, p, q, f]``, not negative (after a ReLU).
      head: from feature maps to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted ones.
      raw: return L itself, not scaled to [0, 1].

    Raises:
      ValueError: the feature maps are below 8×8, or an argument does not fit.
    """
    return _explained(_higher_orders, features, head, images, targets, raw)


def _explained(weigh: Callable, features, head, images, targets, raw: bool) -> Array:
    images = checked_images(images)
    features, head = as_argument(features), as_argument(head)
    maps = apply.eval_shape(features, images)
    if maps.ndim != 4 or len(maps) != len(images) or min(maps.shape[1:3]) < _SMALLEST:
        raise ValueError(
            f"features: got shape {maps.shape}, wanted ({len(images)}, p, q, f), p and q at least "
            f"{_SMALLEST}: take an earlier stage of the network"
        )
    targets = checked_targets(head, maps, targets)
    return finished(_weighted(weigh, features, head, images, targets), raw=raw)


@partial(jax.jit, static_argnums=0)
def _weighted(
    weigh: Callable, features: Partial, head: Partial, images: Array, targets: Array | None
) -> Float[Array, "b h w"]:
    maps = features(images)
    gradient = target_gradient(head, maps, targets)
    maps = maps.astype(gradient.dtype)
    weights = weigh(maps, gradient)
    total = jnp.einsum("bpqf,bf->bpq", maps, weights, precision=jax.lax.Precision.HIGHEST)
    return jax.image.resize(jax.nn.relu(total), images.shape[:3], "bilinear")


def _mean_gradient(maps: Float[Array, "b p q f"], gradient: Float[Array, "b p q f"]) -> Array:
    return jnp.mean(gradient, axis=(1, 2))


def _higher_orders(maps: Float[Array, "b p q f"], gradient: Float[Array, "b p q f"]) -> Array:
    total = jnp.sum(maps, axis=(1, 2), keepdims=True)
    below = 2 + gradient * total  # of α, divided by g²
    alpha = jnp.where((gradient == 0) | (below == 0), 0, 1 / jnp.where(below == 0, 1, below))
    return jnp.sum(alpha * jax.nn.relu(gradient), axis=(1, 2))
