"""Grad-CAM++: feature maps weighted by gradients of higher order."""

from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.explain.inputs import Function
from jaxatr.explain.method import Method
from jaxatr.explain.methods.grad_cam import explained
from jaxatr.typing import Array, ArrayLike, Float, Int


def grad_cam_plus_plus(
    features: Function,
    head: Function,
    images: Float[ArrayLike, "b h w c"],
    *,
    targets: Int[ArrayLike, " b"] | None = None,
    raw: bool = False,
) -> Float[Array, "b h w"]:
    r"""Computes Grad-CAM++ maps (Chattopadhay et al. 2018, equations 10, 11 and 19).

    .. math::
      \alpha^f_{ij} = \frac{(g^f_{ij})^2}{2 (g^f_{ij})^2 + (g^f_{ij})^3 \sum_{ab} A^f_{ab}}, \qquad
      w_f = \sum_{ij} \alpha^f_{ij} \operatorname{ReLU}(g^f_{ij}), \qquad
      L_{ij} = \operatorname{ReLU}\Big(\sum_f w_f A^f_{ij}\Big)

    with g the gradient of the target's logit S. The paper's score is exp(S), which gives this
    closed form and multiplies each map by exp(S); that factor can overflow, and is left out of the
    raw map. α is 0 where its denominator is 0. The authors' code also divides the α of a feature
    map by their sum; the equations do not.

    Args:
      features: maps images to feature maps ``[b, p, q, f]``, not negative (after a ReLU).
      head: maps feature maps to logits ``[b, k]``.
      images: ``[b, h, w, c]``.
      targets: ``[b]``, classes; None for the predicted classes.
      raw: return L itself instead of scaling to [0, 1].

    Raises:
      ValueError: the feature maps are below 8×8, or an argument is invalid.
    """
    return explained(_higher_orders, features, head, images, targets, raw)


def _higher_orders(maps: Float[Array, "b p q f"], gradient: Float[Array, "b p q f"]) -> Array:
    total = jnp.sum(maps, axis=(1, 2), keepdims=True)
    below = 2 + gradient * total  # of α, divided by g²
    alpha = jnp.where((gradient == 0) | (below == 0), 0, 1 / jnp.where(below == 0, 1, below))
    return jnp.sum(alpha * jax.nn.relu(gradient), axis=(1, 2))


PART = Method(
    "grad_cam_plus_plus",
    "Grad-CAM++",
    partial(grad_cam_plus_plus, raw=True),
    aliases=("gradcam++",),
    two_parts=True,
)
