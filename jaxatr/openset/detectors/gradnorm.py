r"""Length of the last layer's gradient towards uniform probabilities (Huang et al. 2021).

The score is the L1 norm of the gradient, with respect to the last layer's weights, of the
divergence between the class probabilities and uniform ones. For this layer it is a product:

.. math:: \lVert f \rVert_1 \cdot \sum_k \left| p_k - 1 / K \right|

"On the importance of gradients".
"""

from functools import partial

import chex
import jax
import jax.numpy as jnp

from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


@partial(jax.jit, static_argnames="temperature")
def gradnorm_score(
    features: Float[ArrayLike, "b d"], logits: Float[ArrayLike, "b k"], *, temperature: float = 1.0
) -> Float[Array, " b"]:
    """Computes the norm of the gradient, which is larger for known examples.

    The divergence is a mean over the classes; the authors' code uses the sum, which is K times as
    large.

    Args:
      logits: ``[b, k]``, output of the last layer.
      temperature: T of the probabilities.

    Raises:
      ValueError: ``temperature`` is not positive.

    >>> float(gradnorm_score(jnp.array([[1.0, -2.0]]), jnp.array([[0.0, 0.0]]))[0])
    0.0
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, wanted a positive number")
    chex.assert_rank([features, logits], 2)
    p = jax.nn.softmax(jnp.asarray(logits) / temperature, axis=-1)
    away = jnp.sum(jnp.abs(p - 1 / p.shape[-1]), axis=-1) / temperature
    return jnp.sum(jnp.abs(jnp.asarray(features)), axis=-1) * away


PART = Score.of_arrays("gradnorm", "GradNorm", gradnorm_score, traced=gradnorm_score)
