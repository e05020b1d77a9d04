"""The embedding network: shapes, unit length and errors."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr import models


class Mean(nn.Module):
    """The mean of each channel."""

    @nn.compact
    def __call__(self, images, train=False):
        del train
        return images.mean((1, 2))


class Flat(nn.Module):
    """A wrong backbone, which returns a map."""

    @nn.compact
    def __call__(self, images, train=False):
        del train
        return images


IMAGES = np.float32(np.random.default_rng(0).normal(size=(5, 4, 4, 3)))


def build(**fields):
    network = models.EmbeddingNetwork(Mean(), num_coarse=2, num_fine=6, **fields)
    return jax.jit(network.apply), jax.jit(network.init)(jax.random.key(0), IMAGES)


def test_shapes_and_unit_length():
    apply, variables = build(dimension=7)
    out = apply(variables, IMAGES)
    assert [leaf.shape for leaf in out] == [(5, 7), (5, 2), (5, 6)]
    np.testing.assert_allclose(jnp.linalg.norm(out.embeddings, axis=1), 1, atol=1e-6)
    raw = build(dimension=7, unit_length=False)[0](variables, IMAGES)
    np.testing.assert_array_equal(raw.fine_logits, out.fine_logits)  # the heads see the layer
    lengths = jnp.linalg.norm(raw.embeddings, axis=1, keepdims=True)
    np.testing.assert_allclose(raw.embeddings / lengths, out.embeddings, atol=1e-6)


def test_without_the_layer_features_are_the_embedding():
    apply, variables = build(dimension=0, unit_length=False)
    out = apply(variables, IMAGES)
    np.testing.assert_array_equal(out.embeddings, jax.jit(lambda x: x.mean((1, 2)))(IMAGES))
    assert "embedding" not in variables["params"]


def test_an_embedding_of_zeros_has_a_finite_gradient():
    apply, variables = build(dimension=0)

    def total(images):
        found = apply(variables, images).embeddings
        return found.sum(), found

    slope, found = jax.jit(jax.grad(total, has_aux=True))(jnp.zeros((2, 4, 4, 3)))
    assert (found == 0).all() and jnp.isfinite(slope).all()


def test_a_backbone_without_features_is_refused():
    network = models.EmbeddingNetwork(Flat(), num_coarse=2, num_fine=6)
    with pytest.raises(ValueError, match=r"backbone Flat: got features of shape \(5, 4, 4, 3\)"):
        network.init(jax.random.key(0), IMAGES)
