r"""Outlier exposure (Hendrycks et al. 2019, "Deep Anomaly Detection with Outlier Exposure")."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def outlier_exposure(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    r"""Computes the cross-entropy between outliers and the uniform distribution (section 4.3).

    .. math:: -\frac{1}{k} \sum_i \log p_C^i

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier for examples of no known class.

    >>> round(float(outlier_exposure(jnp.array([[0.0, 0.0]]))[0]), 4)  # log 2, the least
    0.6931
    """
    chex.assert_rank(logits, 2)
    return -jnp.mean(jax.nn.log_softmax(at_least_float32(logits)), axis=-1)


def refused_by_all(open_logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    r"""Computes the loss of the binary classifiers on outliers, which all of them should reject.

    This is equation 3 of Safaei et al. (2023) without the term of the true class: only the
    classifier with the largest error is trained.

    .. math:: -\min_i \log(1 - p_O^i)

    Args:
      open_logits: ``[b, k]``, one logit per binary classifier, before the sigmoid.

    >>> round(float(refused_by_all(jnp.array([[0.0, -1e4]]))[0]), 4)  # log 2
    0.6931
    """
    chex.assert_rank(open_logits, 2)
    return jax.nn.softplus(jnp.max(at_least_float32(open_logits), axis=-1))
