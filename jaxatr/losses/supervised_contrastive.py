r"""Supervised contrastive learning (Khosla et al. 2020)."""

import jax
import jax.numpy as jnp

from jaxatr.losses.distances import unit
from jaxatr.losses.inputs import check_temperature, labelled_batch
from jaxatr.losses.reduce import masked_mean
from jaxatr.typing import Array, ArrayLike, Float, Int


def supervised_contrastive(
    features: Float[ArrayLike, "b d"], labels: Int[ArrayLike, " b"], *, temperature: float = 0.1
) -> Float[Array, ""]:
    r"""Computes the loss that pulls features of the same class together (equation 2, "out").

    It is the mean, over all examples :math:`i` whose class has another example in the batch, of

    .. math::

       \frac{-1}{|P(i)|} \sum_{p \in P(i)}
       \log \frac{e^{z_i \cdot z_p / \tau}}{\sum_{a \neq i} e^{z_i \cdot z_a / \tau}}

    where :math:`z` are the features, normalised to length 1, and :math:`P(i)` the other examples of
    the class. A batch without two examples of a class gives 0 and zero gradient. Under ``pmap`` the
    batch is the device's own: gather features and labels first.

    Args:
      features: ``[b, d]``, of any length. A row of zeros stays zero, with zero gradient.
      labels: ``[b]``, integers. Examples with a negative label have no class and serve only as
        negatives of the others.
      temperature: :math:`\tau > 0`; 0.1 in the paper.

    Raises:
      ValueError: the temperature is not positive.
    """
    check_temperature(temperature)
    features, labels = labelled_batch(features, labels)
    ends = unit(features)
    cosines = jnp.matmul(ends, ends.T, precision=jax.lax.Precision.HIGHEST) / temperature
    itself = jnp.eye(len(labels), dtype=bool)
    positive = (labels[:, None] == labels[None]) & ~itself & (labels >= 0)[:, None]
    others = jnp.where(itself, -jnp.inf, cosines) if len(labels) > 1 else cosines
    log_p = cosines - jax.nn.logsumexp(others, axis=1, keepdims=True)
    count = jnp.sum(positive, axis=1).astype(cosines.dtype)
    values = -jnp.sum(jnp.where(positive, log_p, 0), axis=1) / jnp.maximum(count, 1)
    return masked_mean(values, count > 0)
