"""Squared gradient norms against per-example gradients."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models, openset
from jaxatr.models.convolution import square
from jaxatr.models.resnet import BasicBlock, Bottleneck


class Mixed(nn.Module):
    """Layers of different kinds: flax's convolutions, a parameter of the module, no bias."""

    @nn.compact
    def __call__(self, images, train=False):
        x = nn.Conv(5, (3, 2), strides=2, padding="SAME")(images)
        x = nn.relu(nn.GroupNorm(num_groups=5)(x))
        x = nn.Conv(10, (3, 3), feature_group_count=5, use_bias=False)(x)
        return x.mean((1, 2)) * self.param("scale", nn.initializers.ones, (10,))


class Plain(nn.Module):
    """This package's convolution, with more pixels than weights and with fewer."""

    @nn.compact
    def __call__(self, images, train=False):
        x = nn.relu(square(3, 3)(images))
        x = nn.BatchNorm(use_running_average=True)(square(12, 3, 4)(x))
        return nn.relu(x).mean((1, 2))


def stirred(variables, seed=0):
    """Returns random variables, so that no gradient is 0 by accident."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.1 * draw.standard_normal(leaf.shape), leaf.dtype),
        variables,
    )


def loss(output):
    return openset.conflabel.confounding_loss(output.logits)


def by_vmap(module, variables, images):
    def one(params, image):
        return loss(module.apply({**variables, "params": params}, image[None]))[0]

    gradients = jax.jit(jax.vmap(jax.grad(one), (None, 0)))(variables["params"], images)
    flat = jax.tree_util.tree_flatten_with_path(gradients)[0]
    return {
        "/".join(key.key for key in path): np.sum(
            np.asarray(leaf, np.float64).reshape(len(images), -1) ** 2, axis=1
        )
        for path, leaf in flat
    }


def resnet(block, stem, sizes=(1, 1, 1, 1)):
    return models.ResNet(stage_sizes=sizes, block=block, width=4, stem=stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "size"),
    [
        pytest.param(resnet(BasicBlock, "7x7"), 40, id="basic", marks=pytest.mark.slow),
        pytest.param(resnet(Bottleneck, "3x3"), 16, id="bottleneck", marks=pytest.mark.slow),
        pytest.param(Plain(), 10, id="plain"),
        pytest.param(Mixed(), 9, id="mixed"),
    ],
)
def test_the_norms_are_those_of_each_examples_gradient(backbone, size):
    module = models.OpenSetClassifier(backbone, 3)
    images = jnp.asarray(np.random.default_rng(1).standard_normal((4, size, size, 2)), jnp.float32)
    variables = stirred(module.init(jax.random.key(0), images))
    ours = jax.jit(
        lambda variables, images: models.squared_gradient_norms(module, variables, loss, images)
    )(variables, images)
    expected = by_vmap(module, variables, images)
    assert set(ours) == set(expected)
    for name, norms in expected.items():
        np.testing.assert_allclose(ours[name], norms, rtol=2e-4, atol=1e-12, err_msg=name)
    assert sum(norms.sum() > 0 for norms in expected.values()) >= len(expected) - 2  # open head


class Twice(nn.Module):
    @nn.compact
    def __call__(self, images, train=False):
        layer = nn.Dense(2)
        return layer(layer(images[:, 0, 0, :2]))


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x * self.param("a", nn.initializers.ones, ()), x


class Paired(nn.Module):
    @nn.compact
    def __call__(self, images, train=False):
        return Pair()(images)[0].mean((1, 2))


@pytest.mark.parametrize(
    ("backbone", "message"),
    [(Twice(), "Dense_0: is called twice"), (Paired(), "Pair_0: got tuple, wanted one array")],
)
def test_layers_that_cannot_be_told_apart_are_named(backbone, message):
    module = models.OpenSetClassifier(backbone, 3)
    images = jnp.zeros((2, 4, 4, 2))
    variables = module.init(jax.random.key(0), images)
    with pytest.raises(ValueError, match=message):
        models.squared_gradient_norms(module, variables, loss, images)
