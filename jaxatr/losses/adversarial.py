"""Hinge losses of a generator and a discriminator (Lim and Ye 2017, "Geometric GAN")."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def discriminator_hinge(
    real: Float[ArrayLike, " b"], generated: Float[ArrayLike, " b"]
) -> Float[Array, " b"]:
    """Returns ``max(0, 1 - real) + max(0, 1 + generated)`` for each pair.

    Args:
      real: ``[b]``, the discriminator's logits on real images; higher is more real.
      generated: ``[b]``, its logits on generated ones.
    """
    chex.assert_equal_shape([real, generated])
    return jax.nn.relu(1 - at_least_float32(real)) + jax.nn.relu(1 + at_least_float32(generated))


def generator_hinge(generated: Float[ArrayLike, " b"]) -> Float[Array, " b"]:
    """Returns ``-generated``: the generator wants its images taken for real ones.

    Args:
      generated: ``[b]``, the discriminator's logits on generated images.
    """
    return jnp.negative(at_least_float32(generated))
