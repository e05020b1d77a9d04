r"""Adversarial reciprocal point learning (Chen et al. 2021, ARPL).

Every class has a reciprocal point, which stands for all that the class is not: an example is of the
class whose point it is farthest from. Without ARPL's confusing samples, which a generator draws.
"""

import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float, Int


def reciprocal_logits(
    features: Float[ArrayLike, "b d"], points: Float[ArrayLike, "k d"]
) -> Float[Array, "b k"]:
    r"""Returns how far features are from each class's reciprocal point (equation 4).

    .. math:: \frac1d \lVert f - P_i \rVert^2 - f \cdot P_i

    Their softmax is the class probabilities; the largest one says how known an example is.

    Args:
      features: ``[b, d]``.
      points: ``[k, d]``.
    """
    features, points = at_least_float32(features), at_least_float32(points)
    apart = features[:, None] - points[None]
    dot = jnp.matmul(features, points.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.mean(jnp.square(apart), axis=-1) - dot


def open_space_risk(
    features: Float[ArrayLike, "b d"],
    points: Float[ArrayLike, "k d"],
    labels: Int[ArrayLike, " b"],
    radius: Float[ArrayLike, ""],
    *,
    margin: float = 1.0,
) -> Float[Array, " b"]:
    r"""Returns the bound on the space that a class leaves open (equation 7).

    .. math:: \max(0, \tfrac1d \lVert f - P_y \rVert^2 - R + m)

    Args:
      features: ``[b, d]``.
      points: ``[k, d]``.
      labels: ``[b]``, integers in ``[0, k)``.
      radius: :math:`R`, which is trained too.
      margin: :math:`m`; the equation has none, the published code 1.
    """
    own = at_least_float32(points)[jnp.asarray(labels)]
    squared = jnp.mean(jnp.square(at_least_float32(features) - own), axis=-1)
    return jax.nn.relu(squared - radius + margin)
