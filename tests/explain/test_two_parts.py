"""A network split in two computes the same logits, and its head does not recompute the features."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models
from jaxatr.explain.two_parts import in_two_parts

IMAGES = np.float32(np.random.default_rng(0).normal(size=(3, 64, 64, 1)))


@pytest.fixture(scope="module")
def apply():
    backbone = models.ResNet18(width=4, stage_sizes=(1, 2, 1, 1), axis_name=None)
    module = models.OpenSetClassifier(backbone, 5)
    shapes = jax.eval_shape(module.init, jax.random.key(0), IMAGES[:1])
    draw = np.random.default_rng(1)  # which compiles nothing; a variance has to be positive
    variables = jax.tree.map(lambda one: jnp.float32(draw.random(one.shape) / 10), shapes)
    return lambda images: module.apply(variables, images, train=False).logits


@pytest.mark.slow
def test_the_halves_are_the_whole(apply):
    parts = in_two_parts(apply, IMAGES)
    assert parts.layer == ("backbone", "stage2_block2")  # the last one of 8 × 8
    maps = jax.jit(parts.features)(IMAGES)
    assert maps.shape == (3, 8, 8, 8)
    whole, head = (
        jax.jit(function).lower(argument).compile()
        for function, argument in ((apply, IMAGES), (parts.head, maps))
    )
    np.testing.assert_allclose(head(maps), whole(IMAGES), rtol=1e-5, atol=1e-6)
    assert not np.allclose(head(maps * 0.5), whole(IMAGES))
    assert jax.eval_shape(parts.head, maps[:2]).shape == (2, 5)
    # The second half does not compute the first.
    assert head.cost_analysis()["flops"] < 0.6 * whole.cost_analysis()["flops"]


def test_a_larger_map_is_an_earlier_layer(apply):
    assert in_two_parts(apply, IMAGES, least=16).layer == ("backbone", "stage1_block1")
    with pytest.raises(ValueError, match="40 × 40 pixels for chips of 64 × 64"):
        in_two_parts(apply, IMAGES, least=40)


def test_a_jitted_network_is_refused(apply):
    jitted = jax.jit(apply)
    jax.eval_shape(jitted, IMAGES[:1])
    with pytest.raises(ValueError, match="apply: no linen module with a map ran"):
        in_two_parts(jitted, IMAGES)


def test_the_gradient_in_the_middle_is_the_chain_rule():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Conv(3, (3, 3), name="first")(x)
            return nn.Dense(2, name="last")(jnp.tanh(x).mean((1, 2)))

    images = IMAGES[:, :16, :16]
    variables = jax.jit(Two().init)(jax.random.key(1), images)
    parts = in_two_parts(lambda x: Two().apply(variables, x), images)
    assert parts.layer == ("first",)
    maps = jax.jit(parts.features)(images)
    slope = jax.jit(jax.grad(lambda a: parts.head(a)[:, 0].sum()))(maps)
    weight = np.asarray(variables["params"]["last"]["kernel"])[:, 0]
    expected = (1 - np.tanh(maps) ** 2) * weight / 256
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-8)


def test_a_network_is_not_cut_at_a_layer_within_a_shortcut():
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            y = nn.Conv(4, (1, 1), name="inner")(x)
            y = nn.Conv(4, (3, 3), strides=2, name="outer")(jnp.tanh(y))
            return y + nn.Conv(4, (1, 1), strides=2, name="shortcut")(x)

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = Block(name="block")(nn.Conv(4, (3, 3), name="first")(x))
            return nn.Dense(2, name="last")(x.mean((1, 2)))

    images = IMAGES[:, :12, :12]
    variables = jax.jit(Network().init)(jax.random.key(1), images)
    parts = in_two_parts(lambda x: Network().apply(variables, x), images)
    assert parts.layer == ("first",)  # inner has a map as large, but is not the only way
    whole = jax.jit(Network().apply)(variables, images)
    halves = jax.jit(lambda images: parts.head(parts.features(images)))(images)
    np.testing.assert_allclose(halves, whole, rtol=1e-5, atol=1e-6)
