"""Hinge losses against their formulas, and the signs of their gradients."""

import jax
import numpy as np

from jaxatr import losses


def test_the_discriminator_pays_inside_the_margins():
    real, generated = np.float32([2.0, 0.5, -1.0]), np.float32([-3.0, -0.5, 2.0])
    expected = [0.0, 0.5 + 0.5, 2.0 + 3.0]
    np.testing.assert_allclose(losses.discriminator_hinge(real, generated), expected)
    loss = lambda r, g: losses.discriminator_hinge(r, g).sum()  # noqa: E731
    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))
    np.testing.assert_array_equal(slopes(real, generated), [[0, -1, -1], [0, 1, 1]])


def test_the_generators_loss_falls_with_the_logits():
    np.testing.assert_array_equal(losses.generator_hinge(np.float32([1.5, -2.0])), [-1.5, 2.0])


def test_half_precision_is_summed_in_single():
    half = np.float16([1.0])
    assert losses.discriminator_hinge(half, half).dtype == losses.generator_hinge(half).dtype
    assert losses.generator_hinge(half).dtype == np.float32
