"""Energy: log of the sum of the exponentials of the logits (Liu et al. 2020)."""

from functools import partial

import chex
import jax

from jaxatr.losses.inputs import at_least_float32
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


@partial(jax.jit, static_argnames="temperature")
def energy_score(
    logits: Float[ArrayLike, "b k"], *, temperature: float = 1.0
) -> Float[Array, " b"]:
    r"""Computes minus the energy, :math:`T \log \sum_i e^{z_i / T}` (equation 4).

    Args:
      temperature: T.

    Raises:
      ValueError: ``temperature`` is not positive.

    >>> round(float(energy_score(jax.numpy.array([[0.0, 0.0]]))[0]), 4)  # log 2
    0.6931
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, wanted a positive number")
    chex.assert_rank(logits, 2)
    # In 16 bits, many confident examples would have the same score.
    return temperature * jax.nn.logsumexp(at_least_float32(logits) / temperature, axis=-1)


PART = Score.of_arrays("energy", "energy", energy_score, traced=energy_score)
