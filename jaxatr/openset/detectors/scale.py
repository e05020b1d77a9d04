r"""Energy after scaling the features by how peaked they are (Xu et al. 2024).

All features of an example are multiplied by :math:`e^{Q / Q_p}`, where Q is the sum of the features
and :math:`Q_p` the sum of the largest ones. The score is minus the energy of the resulting logits.
Features must be non-negative.

"Scaling for training time and post-hoc detection enhancement".
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.head import Head, last_layer, logits_of
from jaxatr.openset.inputs import activations
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float

PERCENTILE = 85.0
"""Percentage of the features that is not among the largest; the paper always uses this value."""


def fit(features: Float[ArrayLike, "n d"], head: Head) -> Head:
    """Stores the last layer, after checking that the features are non-negative.

    Raises:
      ValueError: a feature is negative or not finite, which makes the sums meaningless.
    """
    return last_layer(head, activations(features).shape[1])


def largest(features: Float[Array, "b d"], percentile: float) -> Float[Array, "b m"]:
    """Selects the features of each example above a percentile, the largest first.

    Args:
      percentile: percentage of the features to leave out, rounded to whole features.

    Raises:
      ValueError: no feature is left.
    """
    width = features.shape[1]
    kept = width - int(np.round(width * percentile / 100))
    if not 0 < kept <= width:
        raise ValueError(f"percentile: got {percentile} of {width} features, wanted some left")
    return jax.lax.top_k(features, kept)[0]


def factor(features: Float[Array, "b d"], kept: Float[Array, "b m"]) -> Float[Array, "b 1"]:
    """Computes the factor of each example; it is e if all features are 0."""
    total = jnp.sum(features, axis=1, keepdims=True)
    part = jnp.sum(kept, axis=1, keepdims=True)
    return jnp.exp(jnp.where(part > 0, total / jnp.where(part > 0, part, 1), 1))


def score(
    model: Head, features: Float[ArrayLike, "b d"], *, percentile: float = PERCENTILE
) -> Float[Array, " b"]:
    """Computes minus the energy of the scaled features.

    Args:
      percentile: percentage of the features that is not among the largest.
    """
    x = jnp.asarray(features, jnp.float32)
    return energy_score(logits_of(x * factor(x, largest(x, percentile)), model.kernel, model.bias))


PART = Score.of_arrays("scale", "SCALE", score, fit, traced=score, model=Head)
