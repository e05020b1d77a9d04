r"""Minus the generalised entropy of the class probabilities (Liu et al. 2023).

The score is minus the generalised entropy of the M largest probabilities:

.. math:: -\sum_{j \le M} p_{(j)}^{\gamma} \, (1 - p_{(j)})^{\gamma}

"GEN: Pushing the limits".
"""

from functools import partial

import chex
import jax
import jax.numpy as jnp

from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


@partial(jax.jit, static_argnames=("gamma", "largest"))
def gen_score(
    logits: Float[ArrayLike, "b k"], *, gamma: float = 0.1, largest: int = 100
) -> Float[Array, " b"]:
    """Computes minus the generalised entropy.

    Args:
      gamma: γ; the smaller, the more weight small probabilities have.
      largest: M, number of largest probabilities to include, at most all of them.

    Raises:
      ValueError: ``gamma`` is not in (0, 1), or ``largest`` is not positive.

    >>> round(float(gen_score(jnp.array([[0.0, 0.0]]), gamma=0.5)[0]), 4)  # two times 1/2
    -1.0
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma: got {gamma}, wanted a number in (0, 1)")
    if largest < 1:
        raise ValueError(f"largest: got {largest}, wanted at least 1")
    chex.assert_rank(logits, 2)
    z = jnp.sort(jnp.asarray(logits), axis=-1)
    log_p = jax.nn.log_softmax(z, axis=-1)
    # log(1 - p) of the largest p, the last one, is computed from the other probabilities, because
    # 1 - p loses digits near p = 1; the others are at most 1/2.
    last = jnp.arange(z.shape[-1]) == z.shape[-1] - 1
    beside = jax.nn.logsumexp(log_p, axis=-1, where=~last, keepdims=True)
    rest = jnp.where(last, beside, jnp.log1p(-jnp.exp(jnp.where(last, -1.0, log_p))))
    return -jnp.sum(jnp.exp(gamma * (log_p + rest))[:, -largest:], axis=-1)


PART = Score.of_arrays("gen", "GEN", gen_score, traced=gen_score)
