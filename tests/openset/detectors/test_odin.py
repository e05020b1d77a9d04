"""ODIN: the gradient by finite differences in float64, the published formula, a peer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxatr import openset

K = 3
IMAGES = np.float32(np.random.default_rng(0).normal(size=(6, 4, 4, 2)))
HIDDEN, OUT = (np.random.default_rng(1).normal(size=s) for s in ((32, 9), (9, K)))


def logits_of(images):
    z = jnp.tanh(images.reshape(len(images), -1) @ jnp.float32(0.3 * HIDDEN))
    return z @ jnp.float32(OUT)


def one(image):
    """The same network on one image in float64."""
    return np.tanh(np.float64(image).reshape(-1) @ (0.3 * HIDDEN)) @ (OUT)


def stepped(image, epsilon, value):
    """The image, each pixel moved to where the value grows."""
    moved = np.float64(image).copy()
    for place in np.ndindex(image.shape):
        change = np.zeros(image.shape)
        change[place] = 1e-5
        moved[place] += epsilon * np.sign(value(image + change) - value(image - change))
    return moved


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_paper(temperature):
    expected, epsilon = [], 0.1
    for image in np.float64(IMAGES):
        best = one(image).argmax()

        def value(image, best=best):
            return scipy.special.log_softmax(one(image) / temperature)[best]

        moved = stepped(image, epsilon, value)
        expected.append(scipy.special.softmax(one(moved) / temperature).max())
    chosen = {"temperature": temperature, "epsilon": epsilon}
    got = openset.odin_score(logits_of, IMAGES, **chosen)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    jitted = jax.jit(lambda images: openset.odin_score(logits_of, images, **chosen))(IMAGES)
    np.testing.assert_allclose(jitted, expected, atol=1e-5)


def test_without_a_step_it_is_softmax_at_the_temperature():
    got = openset.odin_score(logits_of, IMAGES, temperature=7.0, epsilon=0.0)
    expected = openset.softmax_score(logits_of(IMAGES) / 7)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_step_makes_the_prediction_more_certain():
    before = openset.softmax_score(logits_of(IMAGES))
    after = openset.odin_score(logits_of, IMAGES, temperature=1.0, epsilon=0.01)
    assert (np.asarray(after) > np.asarray(before)).all()


def test_the_temperature_is_positive(unchecked):
    with pytest.raises(ValueError, match="temperature: got 0.0"):
        openset.odin_score(logits_of, IMAGES, temperature=0.0)


@pytest.mark.parametrize("temperature", [1.0, 1000.0])
def test_pytorch_ood_agrees(pytorch_ood, temperature):
    hidden, out = (pytorch_ood.tensor(np.float32(x)) for x in (0.3 * HIDDEN, OUT))

    def network(images):
        return (images.reshape(len(images), -1) @ hidden).tanh() @ out

    peer = pytorch_ood.ODIN(network, eps=0.05, temperature=temperature)
    got = openset.odin_score(logits_of, IMAGES, temperature=temperature, epsilon=0.05)
    np.testing.assert_allclose(got, -peer.predict(pytorch_ood.tensor(IMAGES)).detach(), atol=1e-4)
