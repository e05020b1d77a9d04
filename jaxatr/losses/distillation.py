r"""Losses of the attentive surrogate (Lee and Kim 2021).

The paper is "Explaining Neural Networks Using Attentive Knowledge Distillation".

The teacher is the target network, whose predictions are to be explained. These losses treat its
logits as constants (``jax.lax.stop_gradient``), so the teacher need not be frozen. If the target
network also scores the masked image, the gradient has to flow through *those* logits into the mask;
the caller must keep the target's parameters fixed.

Every loss is computed in at least float32, and value and gradient are finite for logits up to at
least :math:`10^4` in magnitude. Every function returns one value per example; the caller computes
the sums over the data set of equations 4, 8 and 11.
"""

from typing import Literal

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32, check_temperature
from jaxatr.losses.open_set import cross_entropy
from jaxatr.typing import Array, ArrayLike, Float, Int

Reduction = Literal["sum", "mean"]


def soft_distillation(
    teacher_logits: Float[ArrayLike, "b k"],
    student_logits: Float[ArrayLike, "b k"],
    *,
    temperature: float = 1.0,
) -> Float[Array, " b"]:
    r"""Computes the divergence of the student from the teacher, equations 5 and 6.

    .. math:: t^2 \, D_{KL}(\mathrm{softmax}(z_T / t) \,\|\, \mathrm{softmax}(z_S / t))

    The factor keeps the gradient's magnitude independent of t (Hinton et al. 2015).

    Args:
      teacher_logits: ``[b, k]``; no gradient reaches them.
      student_logits: ``[b, k]``.
      temperature: :math:`t > 0`.

    Raises:
      ValueError: the temperature is not positive.

    >>> sure, unsure = jnp.array([[1e4, 0.0]]), jnp.array([[0.0, 0.0]])
    >>> round(float(soft_distillation(sure, unsure)[0]), 4)  # log 2
    0.6931
    """
    chex.assert_rank(teacher_logits, 2)
    chex.assert_equal_shape([teacher_logits, student_logits])
    check_temperature(temperature)
    log_p, log_q = (
        jax.nn.log_softmax(at_least_float32(logits) / temperature)
        for logits in (teacher_logits, student_logits)
    )
    log_p = jax.lax.stop_gradient(log_p)
    return temperature**2 * jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def distillation(
    teacher_logits: Float[ArrayLike, "b k"],
    student_logits: Float[ArrayLike, "b k"],
    labels: Int[ArrayLike, " b"],
    *,
    temperature: float = 1.0,
    alpha: float = 0.5,
) -> Float[Array, " b"]:
    r"""Computes the student network's loss, the summand of equation 4.

    .. math:: L_{KD} = \alpha L_{soft} + (1 - \alpha) L_{hard}

    :math:`L_{soft}` is :func:`soft_distillation`. :math:`L_{hard}` is the cross-entropy between the
    *student* and the label. Equation 7 prints the teacher's output instead, which would be constant
    and give the student no gradient.

    Args:
      teacher_logits: ``[b, k]``; no gradient reaches them.
      student_logits: ``[b, k]``.
      labels: ``[b]``, the true classes, integers in ``[0, k)``.
      temperature: :math:`t > 0` of the soft part; 1 in the paper.
      alpha: :math:`\alpha` in ``[0, 1]``; 0.5 in the paper.

    Raises:
      ValueError: ``alpha`` is out of range, the temperature is not positive, or a concrete label is
        out of range.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha: got {alpha}, wanted 0 to 1")
    soft = soft_distillation(teacher_logits, student_logits, temperature=temperature)
    return alpha * soft + (1 - alpha) * cross_entropy(student_logits, labels)


def explanation(
    teacher_logits: Float[ArrayLike, "b k"], masked_logits: Float[ArrayLike, "b k"]
) -> Float[Array, " b"]:
    r"""Computes the prediction's change under the explanation, equation 9.

    .. math:: L_{EXP} = D_{KL}(\mathrm{softmax}(z_T(x)) \,\|\, \mathrm{softmax}(z(x \odot H_x)))

    Equation 9 prints the student as the scorer :math:`z` of the masked image and omits the mask; by
    sections 3.1 and 3.4 the explanation should preserve the output of the *target*. The caller
    chooses whose logits to pass.

    Args:
      teacher_logits: ``[b, k]``, the target network's logits for the image; no gradient reaches
        them.
      masked_logits: ``[b, k]``, the scorer's logits for the image times its saliency map.
    """
    return soft_distillation(teacher_logits, masked_logits)


def saliency_l1(
    saliency: Float[ArrayLike, "b h w"], *, reduction: Reduction = "sum"
) -> Float[Array, " b"]:
    r"""Computes the norm of each saliency map, :math:`\|H_x\|_1`.

    A suitable weight depends on the reduction. With ``"sum"``, as in equation 8, maps of more
    pixels weigh more; ``"mean"`` is independent of the resolution, so that
    :math:`\lambda = 10^{-5}` at 224 × 224 pixels becomes
    :math:`10^{-5} \cdot 224^2 \approx 0.5`.

    Args:
      saliency: ``[b, h, w]``.
      reduction: reduction over the pixels.

    Raises:
      ValueError: the reduction is unknown.

    >>> halves = jnp.full((1, 4, 4), 0.5)
    >>> float(saliency_l1(halves)[0]), float(saliency_l1(halves, reduction="mean")[0])
    (8.0, 0.5)
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction: got {reduction!r}, wanted 'sum' or 'mean'")
    chex.assert_rank(saliency, 3)
    reduce = jnp.sum if reduction == "sum" else jnp.mean
    return reduce(jnp.abs(at_least_float32(saliency)), axis=(1, 2))


def sparse_explanation(
    teacher_logits: Float[ArrayLike, "b k"],
    masked_logits: Float[ArrayLike, "b k"],
    saliency: Float[ArrayLike, "b h w"],
    *,
    l1_weight: float = 1e-5,
    reduction: Reduction = "sum",
) -> Float[Array, " b"]:
    r"""Computes the explanation network's loss, the summand of equation 8.

    .. math:: L_{EXP} + \lambda \|H_x\|_1

    Args:
      teacher_logits: ``[b, k]``, the target network's logits for the image; no gradient reaches
        them.
      masked_logits: ``[b, k]``, the scorer's logits for the image times its saliency map.
      saliency: ``[b, h, w]``, the saliency map.
      l1_weight: :math:`\lambda`; 1e-5 in the paper, 1e-4 in its variant.
      reduction: reduction over the pixels of the map, ``"sum"`` or ``"mean"``; the scale of the
        weight depends on it.

    Raises:
      ValueError: the reduction is unknown.
    """
    chex.assert_equal_shape_prefix([teacher_logits, saliency], 1)
    kept = explanation(teacher_logits, masked_logits)
    return kept + l1_weight * saliency_l1(saliency, reduction=reduction)


def end_to_end(
    teacher_logits: Float[ArrayLike, "b k"],
    student_logits: Float[ArrayLike, "b k"],
    masked_logits: Float[ArrayLike, "b k"],
    saliency: Float[ArrayLike, "b h w"],
    labels: Int[ArrayLike, " b"],
    *,
    temperature: float = 1.0,
    alpha: float = 0.5,
    l1_weight: float = 1e-5,
    reduction: Reduction = "sum",
) -> Float[Array, " b"]:
    r"""Computes the joint loss of both networks, the summand of equation 11.

    .. math:: L_{KD} + L_{EXP} + \lambda \|H_x\|_1

    Equation 10 minimises it over the parameters of both networks.

    Args:
      teacher_logits: ``[b, k]``, the target network's logits for the image; no gradient reaches
        them.
      student_logits: ``[b, k]``, the student's logits for the image.
      masked_logits: ``[b, k]``, the scorer's logits for the image times its saliency map.
      saliency: ``[b, h, w]``, the saliency map.
      labels: ``[b]``, the true classes, integers in ``[0, k)``.
      temperature: :math:`t > 0` of the distillation's soft part; 1 in the paper.
      alpha: :math:`\alpha` in ``[0, 1]``, the weight of the distillation's soft part.
      l1_weight: :math:`\lambda`; 1e-5 in the paper.
      reduction: reduction over the pixels of the map, ``"sum"`` or ``"mean"``.

    Raises:
      ValueError: ``alpha`` is out of range, the temperature is not positive, the reduction is
        unknown, or a concrete label is out of range.
    """
    student = distillation(
        teacher_logits, student_logits, labels, temperature=temperature, alpha=alpha
    )
    return student + sparse_explanation(
        teacher_logits, masked_logits, saliency, l1_weight=l1_weight, reduction=reduction
    )
