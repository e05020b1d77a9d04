"""Largest probability at a high temperature after perturbing the image (Liang et al. 2018)."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from jaxatr.openset.detectors.softmax import softmax_score
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


def odin_score(
    logits_of: Callable[[Array], Array],
    images: Float[ArrayLike, "b h w c"],
    *,
    temperature: float = 1000.0,
    epsilon: float = 0.0014,
) -> Float[Array, " b"]:
    r"""Computes the largest probability of the perturbed images (equations 1 and 2).

    .. math::
      \tilde x = x - \epsilon\, \operatorname{sign}(-\nabla_x \log S_{\hat y}(x; T)), \qquad
      \max_i S_i(\tilde x; T), \qquad S(x; T) = \operatorname{softmax}(f(x) / T)

    The cost is two forward passes and one backward pass.

    Args:
      logits_of: maps images to logits ``[b, k]``; each row must depend on its own image alone
        (batch normalisation in test mode).
      images: ``[b, h, w, c]``, as ``logits_of`` takes them.
      temperature: T.
      epsilon: ε, in the unit of the images; 0 leaves them unchanged.

    Raises:
      ValueError: ``temperature`` is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, wanted a positive number")

    def total(images: Array) -> Array:
        return jnp.sum(softmax_score(logits_of(images) / temperature, log=True))

    chex.assert_rank(images, 4)
    images = jnp.asarray(images)
    moved = images + epsilon * jnp.sign(jax.grad(total)(images))
    return softmax_score(logits_of(moved) / temperature)


def _score(odin: Float[ArrayLike, " b"]) -> Float[ArrayLike, " b"]:
    """Returns the values of :func:`odin_score`, which needs the network."""
    return odin


PART = Score.of_arrays("odin", "ODIN", _score, traced=_score)
