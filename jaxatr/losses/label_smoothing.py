r"""Cross-entropy with smoothed labels (Szegedy et al. 2016)."""

import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.losses.open_set import cross_entropy
from jaxatr.typing import Array, ArrayLike, Float, Int


def smoothed_cross_entropy(
    logits: Float[ArrayLike, "b k"], labels: Int[ArrayLike, " b"], *, smoothing: float = 0.1
) -> Float[Array, " b"]:
    r"""Computes the cross-entropy with a target that is partly uniform (section 7).

    .. math:: -(1 - \epsilon) \log p^y - \frac{\epsilon}{k} \sum_i \log p^i

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier.
      labels: ``[b]``, integers in ``[0, k)``.
      smoothing: :math:`\epsilon`, in [0, 1]; 0 is the plain cross-entropy.

    Raises:
      ValueError: a concrete label or ``smoothing`` is out of range.

    >>> round(float(smoothed_cross_entropy(jnp.zeros((1, 2)), jnp.array([0]))[0]), 4)  # log 2
    0.6931
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing: got {smoothing}, wanted a number in [0, 1]")
    uniform = -jnp.mean(jax.nn.log_softmax(at_least_float32(logits)), axis=-1)
    return (1 - smoothing) * cross_entropy(logits, labels) + smoothing * uniform
