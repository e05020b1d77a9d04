"""Largest class probability (Hendrycks and Gimpel 2017)."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.losses.inputs import at_least_float32
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


@partial(jax.jit, static_argnames="log")
def softmax_score(logits: Float[ArrayLike, "b k"], *, log: bool = False) -> Float[Array, " b"]:
    """Returns the largest class probability.

    Args:
      log: return its logarithm, which ranks in the same order, but without ties. In float32, in
        which 16 bits are computed too, the probability is 1.0 for every confident example, and such
        ties reduce the AUROC.

    >>> float(softmax_score(jnp.array([[0.0, 0.0]]))[0])
    0.5
    """
    chex.assert_rank(logits, 2)
    logits = at_least_float32(logits)
    if not log:
        return jnp.exp(jnp.max(jax.nn.log_softmax(logits), axis=-1))
    # log p = -log(1 + Σ_{i≠best} exp(z_i - z_best)), which is accurate where p is nearly 1.
    z = logits - jnp.max(logits, axis=-1, keepdims=True)
    others = ~jax.nn.one_hot(jnp.argmax(z, axis=-1), z.shape[-1], dtype=bool)
    return -jnp.log1p(jnp.sum(jnp.exp(z), axis=-1, where=others))


def _score(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    return softmax_score(logits, log=True)


PART = Score.of_arrays(
    "softmax",
    "SoftMax",
    _score,
    traced=_score,
    scale="log",
    fixed_threshold=lambda gamma: float(np.log(gamma)) if gamma > 0 else -np.inf,
)
