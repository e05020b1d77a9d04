r"""Losses of given pairs and triplets: equations 1 and 2 of Karaman et al. (2019).

The paper is "Quadruplet Selection Methods for Deep Embedding Learning".

:math:`D` is the Euclidean distance. Gradients are finite where points coincide. A tuple that is not
``valid`` gives 0 and no gradient, even if it contains NaN; reduce with
:func:`jaxatr.losses.masked_mean` and the same mask.
"""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.distances import root, squared_l2
from jaxatr.typing import Array, ArrayLike, Bool, Float


def contrastive(
    first: Float[ArrayLike, "b d"],
    second: Float[ArrayLike, "b d"],
    same: Bool[ArrayLike, " b"],
    *,
    margin: float = 1.0,
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    r"""Computes the contrastive loss of pairs, equation 1.

    .. math:: y D^2 + (1 - y) [\alpha - D]_+^2

    Args:
      first: ``[b, d]``, embeddings of the first examples.
      second: ``[b, d]``, embeddings of the second examples.
      same: ``[b]``, :math:`y`, whether the two belong to the same class.
      margin: :math:`\alpha`, the distance beyond which different classes are not pushed apart.
      valid: ``[b]``, mask of the pairs to use; by default all.

    >>> pair = jnp.array([[0.0, 0.0]]), jnp.array([[0.3, 0.4]])
    >>> round(float(contrastive(*pair, jnp.array([True]))[0]), 4)
    0.25
    """
    chex.assert_equal_shape([first, second])
    chex.assert_shape(same, (len(first),))
    squared = squared_l2(first, second, valid)
    apart = jnp.square(jax.nn.relu(margin - root(squared)))
    return keep_valid(jnp.where(same, squared, apart), valid)


def triplet(
    reference: Float[ArrayLike, "b d"],
    positive: Float[ArrayLike, "b d"],
    negative: Float[ArrayLike, "b d"],
    *,
    margin: float = 0.2,
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    r"""Computes the triplet loss, equation 2.

    .. math:: [D_{R,P}^2 - D_{R,N}^2 + m]_+

    Args:
      reference: ``[b, d]``, embeddings of the references.
      positive: ``[b, d]``, embeddings of examples of the reference's class.
      negative: ``[b, d]``, embeddings of examples of another class.
      margin: :math:`m`, in squared distance; 0.2 in FaceNet, for embeddings of unit length.
      valid: ``[b]``, mask of the triplets to use; by default all.
    """
    chex.assert_equal_shape([reference, positive, negative])
    closer = squared_l2(reference, positive, valid) - squared_l2(reference, negative, valid)
    return keep_valid(jax.nn.relu(closer + margin), valid)


def keep_valid(
    values: Float[Array, " b"], valid: Bool[ArrayLike, " b"] | None
) -> Float[Array, " b"]:
    """Replaces invalid values by 0, without gradient."""
    return values if valid is None else jnp.where(valid, values, 0)
