"""Logit of the predicted class's binary classifier (Safaei et al. 2023, section 2.3)."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.openset.logistic import logit
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


@jax.jit
def cbc_score(
    logits: Float[ArrayLike, "b k"], open_logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    """Returns the logit of the predicted class's binary classifier.

    The logit is used instead of the probability, because a float32 sigmoid saturates at 1.0 from a
    logit of 17 on, which creates ties.

    Args:
      logits: ``[b, k]``, of the closed-set classifier; its argmax (the lower index on ties)
        selects the binary classifier.
      open_logits: ``[b, k]``, one logit per binary classifier.

    >>> float(cbc_score(jnp.array([[2.0, 1.0]]), jnp.array([[-3.0, 5.0]]))[0])
    -3.0
    """
    chex.assert_rank(logits, 2)
    chex.assert_equal_shape([logits, open_logits])
    predicted = jnp.argmax(jnp.asarray(logits), axis=-1, keepdims=True)
    return jnp.take_along_axis(jnp.asarray(open_logits), predicted, axis=-1)[:, 0]


PART = Score.of_arrays(
    "cbc", "CBC", cbc_score, traced=cbc_score, scale="logit", fixed_threshold=logit
)
