"""The focal loss of maps of centres (Law and Deng 2018, "CornerNet", equation 1)."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def centre_focal(
    logits: Float[ArrayLike, "..."], heat: Float[ArrayLike, "..."]
) -> Float[Array, "..."]:
    r"""Computes the focal loss at each place of a map of centres.

    .. math::
        -(1 - p)^2 \log p & \text{ at a centre, } y = 1

        -(1 - y)^4 p^2 \log(1 - p) & \text{ elsewhere}

    Sums are usually divided by the number of centres.

    Args:
      logits: logits of p, any shape.
      heat: y, 1 at centres, less around them, 0 elsewhere; of the same shape.

    >>> round(float(centre_focal(jnp.array(0.0), jnp.array(1.0))), 4)  # log 2, times a quarter
    0.1733
    """
    logits, heat = at_least_float32(logits), at_least_float32(heat)
    chex.assert_equal_shape([logits, heat])
    p = jax.nn.sigmoid(logits)
    at_centre = jnp.square(1 - p) * jax.nn.softplus(-logits)
    elsewhere = (1 - heat) ** 4 * jnp.square(p) * jax.nn.softplus(logits)
    return jnp.where(heat == 1, at_centre, elsewhere)
