"""The network's last layer, for features that a score has modified."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.score import Head
from jaxatr.typing import Array, ArrayLike, Float


class LastLayer(NamedTuple):
    """The closed-set classifier's last layer as a fitted model.

    Attributes:
      kernel: ``[d, k]``.
      bias: ``[k]``; 0 if the layer has none.
    """

    kernel: Float[ArrayLike, "d k"]
    bias: Float[ArrayLike, " k"]


def last_layer(head: Head, width: int) -> LastLayer:
    """Copies a network's last layer, in float32.

    Args:
      head: the network's last layer.
      width: d, the number of features.
    """
    kernel = np.asarray(head.kernel, np.float32)
    chex.assert_shape(kernel, (width, None))
    zeros = np.zeros(kernel.shape[1], np.float32)
    return LastLayer(kernel, zeros if head.bias is None else np.asarray(head.bias, np.float32))


def logits_of(
    features: Float[ArrayLike, "b d"],
    kernel: Float[ArrayLike, "d k"],
    bias: Float[ArrayLike, " k"],
) -> Float[Array, "b k"]:
    """Computes ``features @ kernel + bias`` in full float32 precision."""
    product = jnp.dot(
        jnp.asarray(features), jnp.asarray(kernel), precision=jax.lax.Precision.HIGHEST
    )
    return product + jnp.asarray(bias)
