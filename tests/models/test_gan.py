"""The generator and the discriminator: shapes, ranges and conditioning."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models

KEY = jax.random.key(0)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "channels"), [(16, 1), (32, 3), (64, 1)])
def test_images_fill_their_range_and_depend_on_noise_and_class(size, channels):
    generator = models.Generator(size, channels, width=8)
    noise = jax.random.normal(KEY, (4, 6))
    mixture = jnp.eye(3)[jnp.array([0, 1, 2, 0])]
    images, variables = generator.init_with_output(KEY, noise, mixture)
    assert images.shape == (4, size, size, channels)
    assert -1 <= images.min() and images.max() <= 1
    other_noise = generator.apply(variables, noise[::-1], mixture)
    other_class = generator.apply(variables, noise, mixture[::-1])
    assert not np.allclose(images, other_noise) and not np.allclose(images[0], other_class[1])
    between = generator.apply(variables, noise, jnp.full((4, 3), 1 / 3))
    assert np.isfinite(between).all() and not np.allclose(between, images)


@pytest.mark.slow
def test_the_logit_depends_on_image_and_class():
    discriminator = models.Discriminator(16, 3, width=8)
    images, classes = jax.random.normal(KEY, (4, 16, 16, 1)), jnp.eye(3)[jnp.array([0, 1, 2, 0])]
    variables = discriminator.init(KEY, images, classes, train=False)
    logits = discriminator.apply(variables, images, classes, train=False)
    assert logits.shape == (4,)
    for other in ((images[::-1], classes), (images, classes[::-1])):
        assert not np.allclose(logits, discriminator.apply(variables, *other, train=False))


def test_every_layer_is_normalised_by_its_largest_singular_value():
    """Scaling a kernel by ten has no effect once the power iteration has converged."""
    discriminator = models.Discriminator(16, 3, width=8)
    images, classes = jax.random.normal(KEY, (4, 16, 16, 1)), jnp.eye(3)[jnp.array([0, 1, 2, 0])]
    variables = jax.jit(functools.partial(discriminator.init, train=False))(KEY, images, classes)

    @jax.jit
    def apply(params, state):
        both = {"params": params, "batch_stats": state}
        return discriminator.apply(both, images, classes, train=True, mutable=["batch_stats"])

    def settled(params):
        changed = variables
        for _ in range(60):
            logits, changed = apply(params, changed["batch_stats"])
        return logits

    scaled = jax.tree.map(lambda leaf: 10 * leaf if leaf.ndim > 1 else leaf, variables["params"])
    np.testing.assert_allclose(settled(variables["params"]), settled(scaled), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("size", [8, 24, 0])
def test_a_size_that_cannot_be_doubled_to_is_refused(size):
    with pytest.raises(ValueError, match=f"size: got {size}, wanted a power of two of at least 16"):
        models.Generator(size, 1).init(KEY, jnp.zeros((1, 4)), jnp.ones((1, 2)))


def test_a_width_that_does_not_group_is_refused():
    with pytest.raises(ValueError, match="width: got 12, wanted a multiple of 8"):
        models.Generator(16, 1, width=12).init(KEY, jnp.zeros((1, 4)), jnp.ones((1, 2)))
