"""Hinge losses of a generator and a discriminator (Lim and Ye 2017, "Geometric GAN")."""

import chex
import jax
import jax.numpy as jnp

from jaxatr.losses.inputs import at_least_float32
from jaxatr.typing import Array, ArrayLike, Float


def discriminator_hinge(
    real: Float[ArrayLike, " b"], generated: Float[ArrayLike, " b"]
) -> Float[Array, " b"]:
    """Computes ``max(0, 1 - real) + max(0, 1 + generated)`` for each pair.

    Args:
      real: ``[b]``, the discriminator's logits for real images; higher is more real.
      generated: ``[b]``, the discriminator's logits for generated images.
    """
    chex.assert_equal_shape([real, generated])
    return jax.nn.relu(1 - at_least_float32(real)) + jax.nn.relu(1 + at_least_float32(generated))


def generator_hinge(generated: Float[ArrayLike, " b"]) -> Float[Array, " b"]:
    """Computes ``-generated``: the generator is trained to have its images classified as real.

    Args:
      generated: ``[b]``, the discriminator's logits for generated images.
    """
    return jnp.negative(at_least_float32(generated))
