r"""Logit normalisation (Wei et al. 2022).

The paper is "Mitigating Neural Network Overconfidence with Logit Normalization".
"""

from jaxatr.losses.distances import unit
from jaxatr.losses.inputs import at_least_float32, check_temperature
from jaxatr.typing import Array, ArrayLike, Float


def normalised_logits(
    logits: Float[ArrayLike, "b k"], *, temperature: float = 0.04
) -> Float[Array, "b k"]:
    r"""Normalises logits to a common length; their cross-entropy is the paper's equation 8.

    .. math:: \frac{z}{\tau \lVert z \rVert}

    Training can then no longer lower the loss by lengthening the logits, so their length still
    indicates how known an example is. Use this for training only: scores take the unnormalised
    logits.

    Args:
      logits: ``[b, k]``. A row of zeros stays zero, with zero gradient.
      temperature: :math:`\tau > 0`; 0.04 in the paper for CIFAR-10.

    Raises:
      ValueError: the temperature is not positive.

    >>> import jax.numpy as jnp
    >>> normalised_logits(jnp.array([[3.0, 4.0]]), temperature=0.5).tolist()
    [[1.2000000476837158, 1.600000023841858]]
    """
    check_temperature(temperature)
    return unit(at_least_float32(logits)) / temperature
