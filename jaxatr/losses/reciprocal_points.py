r"""Adversarial reciprocal point learning (Chen et al. 2021, ARPL).

Every class has a reciprocal point, which represents everything outside the class: an example
belongs to the class whose point is farthest away. ARPL's generator of confusing samples is not
included.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32, known_classes, nan_outside
from jaxatr.typing import Array, ArrayLike, Float, Int


def reciprocal_logits(
    features: Float[ArrayLike, "b d"], points: Float[ArrayLike, "k d"]
) -> Float[Array, "b k"]:
    r"""Computes the distances from features to the classes' reciprocal points (equation 4).

    .. math:: \frac1d \lVert f - P_i \rVert^2 - f \cdot P_i

    The softmax of the distances gives the class probabilities. The largest distance is a score of
    how known an example is.

    Args:
      features: ``[b, d]``, features of the examples.
      points: ``[k, d]``, one reciprocal point per class.
    """
    features, points = _checked(features, points)
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
    r"""Computes the loss that bounds the open space of each class (equation 7).

    .. math:: \max(0, \tfrac1d \lVert f - P_y \rVert^2 - R + m)

    Args:
      features: ``[b, d]``, features of the examples.
      points: ``[k, d]``, one reciprocal point per class.
      labels: ``[b]``, integers in ``[0, k)``.
      radius: :math:`R`, a trained parameter.
      margin: :math:`m`; absent from the equation, 1 in the published code.

    Raises:
      ValueError: a concrete label is out of range; the loss of a traced one is NaN.
    """
    features, points = _checked(features, points)
    labels = known_classes(labels, len(features), len(points))
    squared = jnp.mean(jnp.square(features - points[labels]), axis=-1)
    return nan_outside(jax.nn.relu(squared - radius + margin), labels, len(points))


def _checked(features, points) -> tuple[Array, Array]:
    features, points = at_least_float32(features), at_least_float32(points)
    chex.assert_shape([features, points], (None, points.shape[-1]))
    return features, points
