r"""Distance to the decision boundaries over that to the mean features (Liu and Qin 2024).

The features' mean distance to the boundaries between the predicted class and the other classes,
divided by their distance to the mean of the training features:

.. math::
  \frac{1}{K - 1} \sum_{c \ne \hat y}
  \frac{z_{\hat y} - z_c}{\lVert w_{\hat y} - w_c \rVert_2 \, \lVert f - \mu \rVert_2}

"Fast decision boundary based out-of-distribution detector".
"""

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


class Boundaries(NamedTuple):
    """A fitted model.

    Attributes:
      mean: ``[d]``, mean of the training features.
      between: ``[k, k]``, norm of the difference of two classes' weights; 1 on the diagonal.
    """

    mean: Float[ArrayLike, " d"]
    between: Float[ArrayLike, "k k"]


def fit(features: Float[ArrayLike, "n d"], head: Head) -> Boundaries:
    """Computes the mean of the features and the lengths of the weights' differences.

    Raises:
      ValueError: a feature is not finite, there is one class only, or two have the same weights.
    """
    from scipy.spatial import distance  # slow to import

    features = finite("features", features)
    weights = np.asarray(last_layer(head, features.shape[1]).kernel, np.float64).T
    if len(weights) < 2:
        raise ValueError("kernel: got one class, wanted two or more")
    between = distance.cdist(weights, weights) + np.eye(len(weights))
    if not between.all():
        first, second = np.argwhere(between == 0)[0]
        raise ValueError(f"kernel: classes {first} and {second} have the same weights")
    return Boundaries(features.mean(axis=0), between)


@jax.jit
def score(
    model: Boundaries, features: Float[ArrayLike, "b d"], logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    """Computes the mean distance to the boundaries, divided by the distance to the mean."""
    z, between = jnp.asarray(logits), jnp.asarray(model.between)
    chex.assert_shape(features, (z.shape[0], *np.shape(model.mean)))
    ahead = jnp.max(z, axis=-1, keepdims=True) - z
    total = jnp.sum(ahead / between[jnp.argmax(z, axis=-1)], axis=-1)
    centred = jnp.asarray(features) - jnp.asarray(model.mean)[None]
    away = jnp.sum(gallery.unit(centred) * centred, axis=-1)  # the length: no squares are lost
    return total / ((z.shape[1] - 1) * jnp.where(away > 0, away, 1e-8))


PART = Score.of_arrays("fdbd", "fDBD", score, fit, traced=score, model=Boundaries)
