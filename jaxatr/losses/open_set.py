r"""Losses of open-set recognition (Safaei et al. 2023, "Open-Set Automatic Target Recognition").

Every loss is computed in at least float32 and is finite, with the correct gradient, for logits up
to at least :math:`10^4` in magnitude: logarithms are never taken of explicit probabilities.

A concrete label out of range raises ``ValueError``. Under a transformation such as ``jit``, values
are not available; the loss of that example is NaN instead.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32, known_classes, nan_outside
from jaxatr.typing import Array, ArrayLike, Float, Int


def cross_entropy(
    logits: Float[ArrayLike, "b k"], labels: Int[ArrayLike, " b"]
) -> Float[Array, " b"]:
    r"""Computes the cross-entropy :math:`-\log p_C^y`, equation 1.

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier C.
      labels: ``[b]``, integers in ``[0, k)``.

    Raises:
      ValueError: a concrete label is out of range.
    """
    logits = at_least_float32(logits)
    chex.assert_rank(logits, 2)
    labels = known_classes(labels, *logits.shape)
    return nan_outside(-_pick(jax.nn.log_softmax(logits), labels), labels, logits.shape[-1])


def entropy(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    r"""Computes the entropy of the closed-set prediction in nats, equation 2.

    .. math:: -\sum_i p_C^i \log p_C^i

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier C.

    >>> round(float(entropy(jnp.array([[0.0, 0.0]]))[0]), 4)  # log 2
    0.6931
    """
    chex.assert_rank(logits, 2)
    log_p = jax.nn.log_softmax(at_least_float32(logits))
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def cbc(open_logits: Float[ArrayLike, "b k"], labels: Int[ArrayLike, " b"]) -> Float[Array, " b"]:
    r"""Computes the loss of the category-aware binary classifiers, equation 3.

    .. math:: -\log p_O^y - \min_{i \neq y} \log(1 - p_O^i)

    Only the classifier of the example's class and the hardest negative, the one with the largest
    error, are trained. With a single class there is no negative term. Equally hard negatives share
    the gradient equally.

    Args:
      open_logits: ``[b, k]``, one logit per binary classifier, before the sigmoid.
      labels: ``[b]``, integers in ``[0, k)``.

    Raises:
      ValueError: a concrete label is out of range.

    >>> round(float(cbc(jnp.array([[0.0, -1e4, -1e4]]), jnp.array([0]))[0]), 4)  # log 2
    0.6931
    """
    open_logits = at_least_float32(open_logits)
    chex.assert_rank(open_logits, 2)
    num_classes = open_logits.shape[1]
    labels = known_classes(labels, *open_logits.shape)
    loss = jax.nn.softplus(-_pick(open_logits, labels))
    if num_classes > 1:
        own = jax.nn.one_hot(labels, num_classes, dtype=bool)
        loss += jax.nn.softplus(jnp.max(open_logits, axis=-1, where=~own, initial=-jnp.inf))
    return nan_outside(loss, labels, num_classes)


def one_vs_rest_bce(
    open_logits: Float[ArrayLike, "b k"],
    labels: Int[ArrayLike, " b"],
    *,
    reduction: Literal["sum", "mean"] = "sum",
) -> Float[Array, " b"]:
    r"""Computes the binary cross-entropy over all binary classifiers, the ablation of table 4.

    .. math:: -\log p_O^y - \sum_{i \neq y} \log(1 - p_O^i)

    Args:
      open_logits: ``[b, k]``, one logit per binary classifier, before the sigmoid.
      labels: ``[b]``, integers in ``[0, k)``.
      reduction: over the k classifiers; not specified by the paper. ``"sum"`` gives the positive
        term the same weight as :func:`cbc`; ``"mean"`` is the definition in most libraries.

    Raises:
      ValueError: a concrete label is out of range, or the reduction is unknown.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction: got {reduction!r}, wanted 'sum' or 'mean'")
    open_logits = at_least_float32(open_logits)
    chex.assert_rank(open_logits, 2)
    num_classes = open_logits.shape[1]
    labels = known_classes(labels, *open_logits.shape)
    own = jax.nn.one_hot(labels, num_classes, dtype=bool)
    terms = jax.nn.softplus(jnp.where(own, -open_logits, open_logits))
    total = jnp.sum(terms, axis=-1) if reduction == "sum" else jnp.mean(terms, axis=-1)
    return nan_outside(total, labels, num_classes)


def open_set(
    logits: Float[ArrayLike, "b k"],
    open_logits: Float[ArrayLike, "b k"],
    labels: Int[ArrayLike, " b"],
    *,
    entropy_weight: float = 0.1,
    open_weight: float = 1.0,
) -> Float[Array, " b"]:
    r"""Computes the total training loss, equation 4.

    .. math:: L_{ce} + w_{open} L_{cbc} + \lambda L_{ent}

    Args:
      logits: ``[b, k]``, logits of the closed-set classifier C.
      open_logits: ``[b, k]``, one logit per binary classifier, before the sigmoid.
      labels: ``[b]``, integers in ``[0, k)``.
      entropy_weight: :math:`\lambda`.
      open_weight: :math:`w_{open}`; 1 in the paper, 0.5 in the paper's code.

    Raises:
      ValueError: a concrete label is out of range.
    """
    chex.assert_equal_shape([logits, open_logits])
    closed = cross_entropy(logits, labels) + entropy_weight * entropy(logits)
    return closed + open_weight * cbc(open_logits, labels)


def _pick(values, labels):
    return jnp.take_along_axis(values, labels[:, None], axis=-1, mode="clip")[:, 0]
