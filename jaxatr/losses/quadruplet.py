r"""Losses of quadruplets (Karaman et al. 2019).

The paper is "Quadruplet Selection Methods for Deep Embedding Learning".

A quadruplet is a reference :math:`X^R`, a positive :math:`X^{P^+}` of the same fine class, a
sibling :math:`X^{P^-}` of another fine class under the same coarse class, and a negative
:math:`X^N` of another coarse class. :math:`D` is the Euclidean distance of embeddings, not squared.
All gradients are finite where points coincide: a coincident pair passes none.

Every function takes ``valid``, a mask of the quadruplets that exist (a fine class may have only one
image, a coarse class only one fine class). An invalid row gives 0 and no gradient, and is left out
of means and variances, even if it contains NaN.

Where the paper's text contradicts its equations, the equations are followed:

- The text after equation 4 assigns :math:`\lambda_{c1}` to the fine term and :math:`\lambda_{c2}`
  to the coarse one; equation 4 does the opposite. (The text also swaps the letters g and h of the
  heads, which makes no difference.)
- The text before equation 5 asks for :math:`D_{R,P^+} + m_1 < D_{R,P^-}`; equation 5 asks for
  :math:`D_{R,P^+} + m_1 - m_2 < D_{R,P^-}`, like equation 3 for the means.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.distances import l2
from jaxatr.losses.inputs import at_least_float32
from jaxatr.losses.open_set import cross_entropy
from jaxatr.losses.reduce import masked_mean, masked_moments, over_devices
from jaxatr.losses.tuples import keep_valid
from jaxatr.typing import Array, ArrayLike, Bool, Float, Int


def joint(
    reference: Float[ArrayLike, "b d"],
    positive: Float[ArrayLike, "b d"],
    sibling: Float[ArrayLike, "b d"],
    negative: Float[ArrayLike, "b d"],
    *,
    margins: tuple[float, float] = (0.7, 0.3),
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    r"""Computes the two ratio hinges of equation 5, per quadruplet.

    .. math::

       \left[1 - \frac{D_{R,P^-}}{D_{R,P^+} + m_1 - m_2}\right]_+
       + \left[1 - \frac{D_{R,N}}{D_{R,P^-} + m_2}\right]_+

    The classification term of equation 5 is :func:`hierarchical_cross_entropy` of the reference.

    Args:
      reference: ``[b, d]``, embeddings of the references.
      positive: ``[b, d]``, embeddings of the positives.
      sibling: ``[b, d]``, embeddings of the siblings.
      negative: ``[b, d]``, embeddings of the negatives.
      margins: :math:`m_1 > m_2 > 0`.
      valid: ``[b]``, mask of the quadruplets to use; by default all.

    Raises:
      ValueError: the margins are not in this order.

    >>> at = lambda x: jnp.array([[x, 0.0]])
    >>> round(float(joint(at(0.0), at(0.6), at(0.5), at(2.0))[0]), 4)  # 1 - 0.5 / (0.6 + 0.4)
    0.5
    """
    m1, m2 = margins
    if not m1 > m2 > 0:
        raise ValueError(
            f"margins: got {tuple(margins)}, wanted the first above the second above 0"
        )
    near, middle, far = _distances(reference, positive, sibling, negative, valid)
    loss = jax.nn.relu(1 - middle / (near + m1 - m2)) + jax.nn.relu(1 - far / (middle + m2))
    return keep_valid(loss, valid)


def global_statistics(
    reference: Float[ArrayLike, "b d"],
    positive: Float[ArrayLike, "b d"],
    sibling: Float[ArrayLike, "b d"],
    negative: Float[ArrayLike, "b d"],
    *,
    margins: tuple[float, float] = (0.7, 0.3),
    weights: tuple[float, float] = (1.0, 1.0),
    valid: Bool[ArrayLike, " b"] | None = None,
    axis_name: str | None = None,
) -> Float[Array, ""]:
    r"""Computes the loss of the distances' means and variances over the batch, equation 3.

    .. math::

       \sigma_{P^+}^2 + \sigma_{P^-}^2 + \sigma_N^2
       + \lambda_{g1} [\mu_{P^+} - \mu_{P^-} + t_1 - t_2]_+
       + \lambda_{g2} [\mu_{P^-} - \mu_N + t_2]_+

    The variances are population variances, divided by the number of quadruplets. Without a valid
    quadruplet the loss is 0.

    Under ``pmap`` with ``axis_name``, means and variances are over the global batch, and every
    device returns the same global value. The correct gradient is then the *mean* of the devices'
    gradients; if they are summed instead, as in this package's training loop, divide the value by
    the number of devices.

    Args:
      reference: ``[b, d]``, embeddings of the references.
      positive: ``[b, d]``, embeddings of the positives.
      sibling: ``[b, d]``, embeddings of the siblings.
      negative: ``[b, d]``, embeddings of the negatives.
      margins: :math:`t_1, t_2`.
      weights: :math:`\lambda_{g1}, \lambda_{g2}`.
      valid: ``[b]``, mask of the quadruplets to use; by default all.
      axis_name: name of the ``pmap`` axis; :data:`jaxatr.parallel.AXIS` in this package.
    """
    distances = _distances(reference, positive, sibling, negative, valid)
    mask = _mask(reference, valid)
    (near, middle, far), variances = zip(
        *(masked_moments(distance, mask, axis_name=axis_name) for distance in distances),
        strict=True,
    )
    (t1, t2), (first, second) = margins, weights
    loss = sum(variances, start=first * jax.nn.relu(near - middle + t1 - t2))
    loss += second * jax.nn.relu(middle - far + t2)
    return jnp.where(over_devices(jnp.sum(mask), axis_name) > 0, loss, 0)


def hierarchical_cross_entropy(
    coarse_logits: Float[ArrayLike, "b k1"],
    fine_logits: Float[ArrayLike, "b k2"],
    coarse: Int[ArrayLike, " b"],
    fine: Int[ArrayLike, " b"],
    *,
    weights: tuple[float, float] = (0.08, 0.25),
    valid: Bool[ArrayLike, " b"] | None = None,
) -> Float[Array, " b"]:
    r"""Computes the weighted cross-entropies of both heads, equation 4, per example.

    .. math:: -\lambda_{c1} \log p_{coarse}^{y_1} - \lambda_{c2} \log p_{fine}^{y_2}

    Args:
      coarse_logits: ``[b, k1]``, logits of the coarse head.
      fine_logits: ``[b, k2]``, logits of the fine head.
      coarse: ``[b]``, coarse classes, integers in ``[0, k1)``.
      fine: ``[b]``, fine classes, integers in ``[0, k2)``.
      weights: :math:`\lambda_{c1}, \lambda_{c2}` of the coarse and the fine term, as in equation 4.
      valid: ``[b]``, mask of the examples to use; by default all.

    Raises:
      ValueError: a concrete label is out of range.
    """
    chex.assert_equal_shape_prefix([coarse_logits, fine_logits], 1)
    coarse_weight, fine_weight = weights
    loss = coarse_weight * _cross_entropy(coarse_logits, coarse, valid)
    return loss + fine_weight * _cross_entropy(fine_logits, fine, valid)


def combined(
    reference: Float[ArrayLike, "b d"],
    positive: Float[ArrayLike, "b d"],
    sibling: Float[ArrayLike, "b d"],
    negative: Float[ArrayLike, "b d"],
    coarse_logits: Float[ArrayLike, "b k1"],
    fine_logits: Float[ArrayLike, "b k2"],
    coarse: Int[ArrayLike, " b"],
    fine: Int[ArrayLike, " b"],
    *,
    margins: tuple[float, float] = (0.7, 0.3),
    class_weights: tuple[float, float] = (0.08, 0.25),
    global_margins: tuple[float, float] = (0.7, 0.3),
    global_weights: tuple[float, float] = (1.0, 1.0),
    eta: float = 1.0,
    reduction: Literal["sum", "mean"] = "sum",
    valid: Bool[ArrayLike, " b"] | None = None,
    axis_name: str | None = None,
) -> Float[Array, ""]:
    r"""Computes the total loss of a batch of quadruplets, equation 6.

    .. math:: \sum_i L_{joint}(Q_i) + \eta L_{global}(Q)

    where :math:`L_{joint}`, equation 5, is :func:`joint` plus the reference's
    :func:`hierarchical_cross_entropy`.

    Args:
      reference: ``[b, d]``, embeddings of the references.
      positive: ``[b, d]``, embeddings of the positives.
      sibling: ``[b, d]``, embeddings of the siblings.
      negative: ``[b, d]``, embeddings of the negatives.
      coarse_logits: ``[b, k1]``, the coarse head's logits for the references.
      fine_logits: ``[b, k2]``, the fine head's logits for the references.
      coarse: ``[b]``, the references' coarse classes.
      fine: ``[b]``, the references' fine classes.
      margins: :math:`m_1 > m_2 > 0` of :func:`joint`.
      class_weights: :math:`\lambda_{c1}, \lambda_{c2}`, coarse and fine.
      global_margins: :math:`t_1, t_2` of :func:`global_statistics`.
      global_weights: :math:`\lambda_{g1}, \lambda_{g2}`.
      eta: :math:`\eta`, the weight of :func:`global_statistics`.
      reduction: over the quadruplets. ``"sum"`` is the paper's, for which its learning rate was
        chosen. ``"mean"`` makes the scale of the gradient independent of the batch size b, and
        multiplies the relative weight of :math:`L_{global}` by b.
      valid: ``[b]``, mask of the quadruplets to use; by default all.
      axis_name: name of the ``pmap`` axis; the loss is then that of the global batch, the same on
        every device.

    Raises:
      ValueError: the reduction is unknown, the margins are not in order, or a concrete label is
        out of range.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction: got {reduction!r}, wanted 'sum' or 'mean'")
    chex.assert_equal_shape_prefix([reference, coarse_logits], 1)
    quadruplet = (reference, positive, sibling, negative)
    each = joint(*quadruplet, margins=margins, valid=valid)
    each += hierarchical_cross_entropy(
        coarse_logits, fine_logits, coarse, fine, weights=class_weights, valid=valid
    )
    if reduction == "sum":
        total = over_devices(jnp.sum(each), axis_name)
    else:
        total = masked_mean(each, _mask(reference, valid), axis_name=axis_name)
    return total + eta * global_statistics(
        *quadruplet,
        margins=global_margins,
        weights=global_weights,
        valid=valid,
        axis_name=axis_name,
    )


def _distances(reference, positive, sibling, negative, valid):
    chex.assert_equal_shape([reference, positive, sibling, negative])
    return [l2(reference, other, valid) for other in (positive, sibling, negative)]


def _mask(reference, valid):
    return jnp.ones(len(reference), bool) if valid is None else jnp.asarray(valid)


def _cross_entropy(logits, labels, valid):
    if valid is None:
        return cross_entropy(logits, labels)
    chex.assert_shape(valid, (len(logits),))
    logits = jnp.where(jnp.asarray(valid)[:, None], at_least_float32(logits), 0)
    return keep_valid(cross_entropy(logits, jnp.where(valid, labels, 0)), valid)
