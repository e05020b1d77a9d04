r"""Proximity of centred features to the predicted class's weights (Liu and Qin 2025).

The projection of the predicted class's weights on the direction of the centred features, plus the
L1 norm of the features:

.. math::
  \frac{w_{\hat y}^\top (f - \mu)}{\lVert f - \mu \rVert_2} + \alpha \lVert f \rVert_1

"Out-of-distribution through the lens of neural collapse".
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.head import Head, last_layer
from jaxatr.openset.inputs import finite
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float

ALPHA = 1e-4
"""OpenOOD's default for α."""


class Collapse(NamedTuple):
    """A fitted model.

    Attributes:
      mean: ``[d]``, mean of the training features.
      kernel: ``[d, k]``, weights of the last layer.
    """

    mean: Float[ArrayLike, " d"]
    kernel: Float[ArrayLike, "d k"]


def fit(features: Float[ArrayLike, "n d"], head: Head) -> Collapse:
    """Computes the mean of the features, and stores the last layer's weights.

    Raises:
      ValueError: a feature is not finite.
    """
    features = finite("features", features)
    return Collapse(features.mean(axis=0), last_layer(head, features.shape[1]).kernel)


@partial(jax.jit, static_argnames="alpha")
def score(
    model: Collapse,
    features: Float[ArrayLike, "b d"],
    logits: Float[ArrayLike, "b k"],
    *,
    alpha: float = ALPHA,
) -> Float[Array, " b"]:
    """Computes the proximity to the weights plus the weighted norm of the features.

    Args:
      features: ``[b, d]``; the proximity is 0 for features equal to the mean.
      alpha: α, weight of the norm.
    """
    x, z = jnp.asarray(features), jnp.asarray(logits)
    chex.assert_shape(x, (z.shape[0], *np.shape(model.mean)))
    centred = x - jnp.asarray(model.mean)[None]
    own = jnp.asarray(model.kernel).T[jnp.argmax(z, axis=-1)]
    return jnp.sum(own * gallery.unit(centred), axis=-1) + alpha * jnp.sum(jnp.abs(x), axis=-1)


PART = Score.of_arrays("nci", "NCI", score, fit, traced=score, model=Collapse)
