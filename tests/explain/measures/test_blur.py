import jax
import numpy as np
import pytest
from scipy import ndimage

from jaxatr.explain.measures import RISE_BLUR, Blur

IMAGES = np.random.default_rng(0).normal(size=(2, 13, 17, 3)).astype(np.float32)


def test_the_kernels_are_those_that_are_promised():
    weights = Blur().weights()
    by_hand = np.exp(-(np.arange(-5, 6) ** 2) / 50)
    np.testing.assert_allclose(weights, by_hand / by_hand.sum(), rtol=1e-12)
    assert (weights[5] / weights[0]) ** 2 == pytest.approx(np.e)
    # RISE's code filters a delta, in two dimensions and with the borders reflected.
    delta = np.zeros((11, 11))
    delta[5, 5] = 1
    original = ndimage.gaussian_filter(delta, 5)
    np.testing.assert_allclose(np.outer(*[RISE_BLUR.weights()] * 2), original, atol=1e-12)
    assert original[5, 5] / original[0, 0] == pytest.approx(1.14, abs=0.01)


def test_agrees_with_torchs_convolution_as_rise_uses_it():
    torch = pytest.importorskip("torch")
    delta = np.zeros((11, 11))
    delta[5, 5] = 1
    kernel = torch.zeros(3, 3, 11, 11)
    for channel in range(3):
        kernel[channel, channel] = torch.tensor(ndimage.gaussian_filter(delta, 5))
    images = torch.tensor(IMAGES.transpose(0, 3, 1, 2))
    expected = torch.nn.functional.conv2d(images, kernel, padding=5)
    np.testing.assert_allclose(RISE_BLUR(IMAGES).transpose(0, 3, 1, 2), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 13, 17, 3), (1, 3, 4, 1), (1, 1, 1, 1), (1, 1, 30, 2)])
@pytest.mark.parametrize("kernel", ["truncated", "reflected"])
def test_reflection_keeps_the_mean_and_constants(shape, kernel):
    images = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    blur = Blur(kernel=kernel)
    blurred = blur(images)
    assert blurred.dtype == np.float32 and blurred.shape == shape
    np.testing.assert_allclose(blurred.mean((1, 2)), images.mean((1, 2)), atol=1e-6)
    np.testing.assert_allclose(blur(np.full(shape, 7, np.float32)), 7, rtol=1e-6)


@pytest.mark.parametrize("blur", [Blur(), RISE_BLUR, Blur(3, 1.0)])
def test_the_blur_of_a_training_is_that_of_the_measure(blur):
    images = np.random.default_rng(1).random((3, 16, 13, 1)).astype(np.float32) * 200
    np.testing.assert_allclose(jax.jit(blur.traced)(images), blur(images), atol=1e-3)


def test_a_kernel_of_one_pixel_blurs_nothing():
    np.testing.assert_array_equal(Blur(size=1)(IMAGES), IMAGES)


def test_zeros_darken_the_edge_alone():
    white = np.ones((1, 40, 40, 1), np.float32)
    blurred = Blur(border="zeros")(white)
    np.testing.assert_allclose(blurred[0, 5:-5, 5:-5], 1, rtol=1e-6)
    assert blurred[0, 0, 0, 0] < 0.5


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"size": 10}, "blur.size: got 10, wanted an odd"),
        ({"size": -1}, "blur.size: got -1"),
        ({"sigma": 0.0}, "blur.sigma: got 0.0"),
        ({"kernel": "box"}, "blur.kernel: got 'box'"),
        ({"border": "wrap"}, "blur.border: got 'wrap'"),
    ],
)
def test_malformed_blurs_are_refused(unchecked, fields, message):
    with pytest.raises(ValueError, match=message):
        Blur(**fields)
