r"""Losses of quadruplets (Karaman et al. 2019).

The paper is "Quadruplet Selection Methods for Deep Embedding Learning".
A quadruplet is a reference :math:`X^R`, a positive :math:`X^{P^+}` of the same fine class, a
sibling :math:`X^{P^-}` of another fine class under the same coarse class, and a negative
:math:`X^N` of another coarse class. :math:`D` is the Euclidean distance of embeddings, not squared.
All gradients are finite where points coincide: a coincident pair passes none.

Every function takes ``valid``, a mask of the quadruplets that exist (a fine class may have one
image, a coarse class one fine class). A row that is not valid gives 0 and no gradient and enters no
mean and no variance, whatever it holds, NaN included.

Where the paper's text and its equations disagree, the equations are followed:

- The text after equation 4 has :math:`\lambda_{c1}` weigh the fine term and :math:`\lambda_{c2}`
  the coarse one; in equation 4 it is the other way round. (The text also swaps the heads' letters g
  and h, which changes nothing.)
- The text before equation 5 asks for :math:`D_{R,P^+} + m_1 < D_{R,P^-}`; equation 5 asks for
  :math:`D_{R,P^+} + m_1 - m_2 < D_{R,P^-}`, as equation 3 does of the means.
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
    r"""Returns the two ratio hinges of equation 5, per quadruplet.

    .. math::

       \left[1 - \frac{D_{R,P^-}}{D_{R,P^+} + m_1 - m_2}\right]_+
       + \left[1 - \frac{D_{R,N}}{D_{R,P^-} + m_2}\right]_+

    The classification term of equation 5 is :func:`hierarchical_cross_entropy` of the reference.

    Args:
      reference: ``[b, d]``, embeddings.
      positive: ``[b, d]``.
      sibling: ``[b, d]``.
      negative: ``[b, d]``.
      margins: :math:`m_1 > m_2 > 0`.
      valid: ``[b]``, which quadruplets count; all of them without it.

    Raises:
      ValueError: the margins are not ordered.

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
    r"""Returns the loss of the distances' means and variances over the batch, equation 3.

    .. math::

       \sigma_{P^+}^2 + \sigma_{P^-}^2 + \sigma_N^2
       + \lambda_{g1} [\mu_{P^+} - \mu_{P^-} + t_1 - t_2]_+
       + \lambda_{g2} [\mu_{P^-} - \mu_N + t_2]_+

    The variances are those of the population: divided by the number of quadruplets. Without any
    valid quadruplet the loss is 0.

    Under ``pmap`` with ``axis_name``, means and variances are of the global batch, and every device
    returns the same value, that of the whole. The gradient to use is then the *mean* over the
    devices of their gradients; where shares are summed instead, as this package's training loop
    does, a device's share is the value divided by the number of devices.

    Args:
      reference: ``[b, d]``, embeddings.
      positive: ``[b, d]``.
      sibling: ``[b, d]``.
      negative: ``[b, d]``.
      margins: :math:`t_1, t_2`.
      weights: :math:`\lambda_{g1}, \lambda_{g2}`.
      valid: ``[b]``, which quadruplets count; all of them without it.
      axis_name: the axis of ``pmap``, :data:`jaxatr.parallel.AXIS` in this package.
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
    r"""Returns the weighted cross-entropies of both heads, equation 4, per example.

    .. math:: -\lambda_{c1} \log p_{coarse}^{y_1} - \lambda_{c2} \log p_{fine}^{y_2}

    Args:
      coarse_logits: ``[b, k1]``.
      fine_logits: ``[b, k2]``.
      coarse: ``[b]``, integers in ``[0, k1)``.
      fine: ``[b]``, integers in ``[0, k2)``.
      weights: :math:`\lambda_{c1}, \lambda_{c2}`, of the coarse and of the fine term, as equation 4
        has it; the sentence after it names them the other way round.
      valid: ``[b]``, which examples count; all of them without it.

    Raises:
      ValueError: a label is out of range and can be seen.
    """
    of_coarse, of_fine = weights
    loss = of_coarse * _cross_entropy(coarse_logits, coarse, valid)
    return loss + of_fine * _cross_entropy(fine_logits, fine, valid)


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
    r"""Returns the whole loss of a batch of quadruplets, equation 6.

    .. math:: \sum_i L_{joint}(Q_i) + \eta L_{global}(Q)

    with equation 5's :math:`L_{joint}`: :func:`joint` plus :func:`hierarchical_cross_entropy` of
    the reference, which alone is classified.

    Args:
      reference: ``[b, d]``, embeddings.
      positive: ``[b, d]``.
      sibling: ``[b, d]``.
      negative: ``[b, d]``.
      coarse_logits: ``[b, k1]``, of the reference.
      fine_logits: ``[b, k2]``, of the reference.
      coarse: ``[b]``, the reference's coarse class.
      fine: ``[b]``, the reference's fine class.
      margins: :math:`m_1 > m_2 > 0`, as :func:`joint` has them.
      class_weights: :math:`\lambda_{c1}, \lambda_{c2}`, coarse and fine.
      global_margins: :math:`t_1, t_2`, as :func:`global_statistics` has them.
      global_weights: :math:`\lambda_{g1}, \lambda_{g2}`.
      eta: :math:`\eta`.
      reduction: over the quadruplets. ``"sum"`` is the paper's, and its learning rate goes with it;
        ``"mean"`` makes the gradient, and so the learning rate, independent of the batch size, and
        gives :math:`L_{global}` b times the relative weight.
      valid: ``[b]``, which quadruplets count; all of them without it.
      axis_name: as :func:`global_statistics` has it: the loss is of the global batch, the same on
        every device.

    Raises:
      ValueError: an unknown reduction, or as the parts raise.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction: got {reduction!r}, wanted 'sum' or 'mean'")
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
    logits = jnp.where(jnp.asarray(valid)[:, None], at_least_float32(logits), 0)
    return keep_valid(cross_entropy(logits, jnp.where(valid, labels, 0)), valid)
