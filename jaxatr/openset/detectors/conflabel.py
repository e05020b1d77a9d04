"""Minus the summed squared gradient norms under a confounding label (Lee and AlRegib 2021).

Lee and AlRegib (2021), "Open-Set Recognition With Gradient-Based Representations": the confounding
label marks every class as present, unlike any training example. For an example similar to the
training examples, the network's parameters would have to change little.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


def confounding_loss(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    """Computes the binary cross-entropy of every class with label 1, averaged over the classes."""
    chex.assert_rank(logits, 2)
    return jnp.mean(jax.nn.softplus(-jnp.asarray(logits, jnp.float32)), axis=-1)


def sum_score(norms: Float[ArrayLike, "b l"]) -> Float[Array, " b"]:
    """Computes minus the sum of the squared norms, which needs no training.

    Args:
      norms: ``[b, l]``, the squared gradient norms of :func:`confounding_loss` per layer, from
        :func:`jaxatr.models.squared_gradient_norms`.
    """
    chex.assert_rank(norms, 2)
    return -jnp.sum(jnp.asarray(norms), axis=-1)


PART = Score.of_arrays(
    "conflabel", "ConfLabel (sum)", sum_score, arrays={"norms": "gradient_norms"}
)
