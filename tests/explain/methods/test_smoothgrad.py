"""SmoothGrad: hand-derived on linear and square logits, a loop over the same noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.explain.methods.smoothgrad import smoothgrad

KEY = jax.random.key(0)
KERNEL = np.float32([[[1, -2], [0, 3]]])  # one row, two columns, two channels


def linear(x):
    return jnp.sum(x * KERNEL, axis=(1, 2, 3))[:, None]


def square(x):
    return jnp.sum(x**2 * KERNEL, axis=(1, 2, 3))[:, None]


@pytest.mark.parametrize(
    ("squared", "channels", "expected"),
    [
        (False, "sum", [-1, 3]),
        (False, "abs_of_sum", [1, 3]),
        (False, "sum_of_abs", [3, 3]),
        (True, "sum", [5, 9]),
    ],
)
def test_a_constant_gradient_is_that_gradient(squared, channels, expected):
    image = np.float32(np.random.default_rng(0).normal(size=(1, 1, 2, 2)))
    saliency = smoothgrad(linear, image, key=KEY, squared=squared, channels=channels, raw=True)
    np.testing.assert_allclose(saliency[0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("squared", [False, True])
def test_agrees_with_a_loop_over_the_same_noise(squared):
    images = np.float32(np.random.default_rng(0).normal(size=(3, 1, 2, 2)))
    maps = smoothgrad(
        square, images, key=KEY, samples=6, noise=0.4, squared=squared, channels="sum", raw=True
    )
    for image, saliency in zip(np.float64(images), maps, strict=True):
        total = np.zeros(image.shape)
        for noise in np.asarray(jax.random.normal(KEY, (6, *image.shape))):
            noisy = image + 0.4 * (image.max() - image.min()) * noise
            gradient = 2 * KERNEL * noisy
            total += gradient**2 if squared else gradient
        np.testing.assert_allclose(saliency, total.sum(-1) / 6, rtol=1e-4, atol=1e-5)


def test_without_noise_it_is_the_gradient(network, images):
    maps = smoothgrad(
        network.predict, images, key=KEY, noise=0.0, samples=2, channels="sum", raw=True
    )
    gradient = jax.jit(jax.grad(lambda x: network.predict(x).max(axis=1).sum()))(images)
    np.testing.assert_allclose(maps, np.asarray(gradient).sum(-1), rtol=1e-4, atol=1e-6)


def test_wrong_arguments_are_named(network, images, unchecked):
    for options, message in (
        ({"samples": 0}, "samples: got 0, wanted at least 1"),
        ({"noise": -0.1}, "noise: got -0.1, wanted a share of the range, at least 0"),
        ({"channels": "max"}, "channels: got 'max', wanted one of"),
    ):
        with pytest.raises(ValueError, match=message):
            smoothgrad(network.predict, images, key=KEY, **options)
