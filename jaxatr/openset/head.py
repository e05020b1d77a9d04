"""The network's last layer, and logits of features that a score has modified."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.typing import Array, ArrayLike, Float


class Head(NamedTuple):
    """The closed-set classifier's last layer: ``logits = features @ kernel + bias``.

    Attributes:
      kernel: ``[d, k]``.
      bias: ``[k]``, or None.
    """

    kernel: Float[Any, "d k"]
    bias: Float[Any, " k"] | None

    def select(self, classes: Sequence[int] | slice) -> "Head":
        """Returns the layer of some of the classes."""
        bias = None if self.bias is None else np.asarray(self.bias)[classes]
        return Head(np.asarray(self.kernel)[:, classes], bias)


def last_layer(head: Head, width: int) -> Head:
    """Copies a network's last layer, in float32; a bias that it does not have is 0.

    Args:
      head: the network's last layer.
      width: d, the number of features.
    """
    kernel = np.array(head.kernel, np.float32)
    chex.assert_shape(kernel, (width, None))
    zeros = np.zeros(kernel.shape[1], np.float32)
    return Head(kernel, zeros if head.bias is None else np.array(head.bias, np.float32))


def logits_of(
    features: Float[ArrayLike, "b d"],
    kernel: Float[ArrayLike, "d k"],
    bias: Float[ArrayLike, " k"] | None,
) -> Float[Array, "b k"]:
    """Computes ``features @ kernel + bias`` in full float32 precision."""
    product = jnp.dot(
        jnp.asarray(features), jnp.asarray(kernel), precision=jax.lax.Precision.HIGHEST
    )
    return product if bias is None else product + jnp.asarray(bias)[None]
