from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain import measures
from jaxatr.explain.methods.grad_cam import grad_cam
from jaxatr.explain.two_parts import in_two_parts


class Network(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3), name="stem")(x))
        x = nn.relu(nn.Conv(8, (3, 3), name="stem_2")(x)).mean((1, 2))
        return nn.Dense(3, name="head")(x)


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(0)
    shapes = {"stem": (3, 3, 1, 4), "stem_2": (3, 3, 4, 8), "head": (8, 3)}
    return {
        name: {"kernel": jnp.float32(rng.normal(size=shape)), "bias": jnp.zeros(shape[-1])}
        for name, shape in shapes.items()
    }


def test_only_the_named_layers_change_and_keep_their_values(params):
    changed = measures.randomise_layers(params, ["stem", "head/kernel"], jax.random.key(1))
    assert jax.tree.structure(changed) == jax.tree.structure(params)
    for layer, array in (("stem", "kernel"), ("head", "kernel")):
        before, after = params[layer][array], changed[layer][array]
        assert after.shape == before.shape and after.dtype == before.dtype
        assert not np.array_equal(after, before)
        np.testing.assert_array_equal(np.sort(after, axis=None), np.sort(before, axis=None))
    # A layer whose name only begins alike is another one.
    np.testing.assert_array_equal(changed["stem_2"]["kernel"], params["stem_2"]["kernel"])
    np.testing.assert_array_equal(changed["stem"]["bias"], params["stem"]["bias"])  # all zeros


def test_a_key_gives_one_result_beside_other_names(params):
    key = jax.random.key(2)
    alone = measures.randomise_layers(params, ["head"], key)
    cascade = measures.randomise_layers(params, ["head", "stem_2"], key)
    np.testing.assert_array_equal(alone["head"]["kernel"], cascade["head"]["kernel"])
    other = measures.randomise_layers(params, ["head"], jax.random.key(3))
    assert not np.array_equal(alone["head"]["kernel"], other["head"]["kernel"])


def test_saliency_of_the_network_changes(params):
    images = jax.random.normal(jax.random.key(4), (3, 6, 6, 1))

    @jax.jit
    def gradient(params):
        top = lambda x: Network().apply({"params": params}, x).max(axis=1).sum()  # noqa: E731
        return jnp.abs(jax.grad(top)(images)).sum(axis=-1)

    layers = ["head", "stem_2", "stem"]
    changed = gradient(measures.randomise_layers(params, layers, jax.random.key(5)))
    assert np.all(measures.saliency_similarity(gradient(params), changed) < 0.9)
    np.testing.assert_allclose(
        measures.saliency_similarity(gradient(params), gradient(params)), 1, rtol=1e-6
    )


def test_grad_cam_of_the_network_changes(params):
    images = jax.random.normal(jax.random.key(6), (3, 9, 9, 1))

    def saliency(params):
        found = in_two_parts(partial(Network().apply, {"params": params}), images)
        assert found.layer == ("stem_2",)
        return grad_cam(found.features, found.head, images)

    before = saliency(params)
    changed = saliency(measures.randomise_layers(params, ["head", "stem_2"], jax.random.key(7)))
    assert np.all(measures.saliency_similarity(before, changed) < 0.9)
    np.testing.assert_allclose(measures.saliency_similarity(before, saliency(params)), 1, rtol=1e-6)


def test_a_layer_that_is_not_there_is_refused(params):
    with pytest.raises(ValueError, match=r"no 'heed' in params; did you mean 'head'\?"):
        measures.randomise_layers(params, ["heed"], jax.random.key(0))
