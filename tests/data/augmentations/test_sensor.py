"""Speckle, gain, offset, dropped pixels, background and sub-pixel shifts against references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
import scipy.stats

from jaxatr.data.augmentations.background import centre_window, suppress_background
from jaxatr.data.augmentations.dropped_pixels import drop_pixels
from jaxatr.data.augmentations.gain import gain
from jaxatr.data.augmentations.offset import offset
from jaxatr.data.augmentations.speckle import speckle
from jaxatr.data.augmentations.subpixel import shift_subpixel
from jaxatr.data.warp import warp

KEYS = jax.random.split(jax.random.key(1), 2000)


@pytest.mark.parametrize("looks", [1, 4])
def test_speckle_of_an_intensity_is_gamma_noise(looks):
    images = jnp.full((200, 5, 5, 3), 2.0)
    out = np.asarray(speckle(KEYS[:200], images, looks))
    np.testing.assert_array_equal(out[..., 0], out[..., 2])  # gray stays gray
    expected = scipy.stats.gamma(looks, scale=2.0 / looks)
    assert scipy.stats.kstest(out[..., 0].ravel(), expected.cdf).pvalue > 1e-3


def test_speckle_of_other_bands_is_drawn_for_each():
    out = np.asarray(speckle(KEYS[:50], jnp.ones((50, 5, 5, 2)), 1)).reshape(-1, 2)
    assert abs(np.corrcoef(out.T)[0, 1]) < 0.15


def test_speckle_of_an_amplitude_is_its_root():
    images = jnp.full((3, 5, 5, 1), 2.0)
    on_intensity = speckle(KEYS[:3], images, 3)
    on_amplitude = speckle(KEYS[:3], images, 3, "amplitude")
    np.testing.assert_allclose(jnp.square(on_amplitude / 2), on_intensity / 2, rtol=1e-5)


def test_gain_is_log_uniform():
    factors = np.asarray(gain(KEYS, jnp.full((2000, 1, 1, 1), 3.0), 4.0))[:, 0, 0, 0] / 3
    exponents = np.log(factors) / np.log(4)
    assert scipy.stats.kstest(exponents, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_offset_is_uniform_and_the_images_alone():
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2000, 2, 2, 1)), jnp.float32)
    added = np.asarray(offset(KEYS, images, 0.5) - images)
    np.testing.assert_allclose(np.ptp(added, axis=(1, 2, 3)), 0, atol=1e-6)
    assert scipy.stats.kstest(added[:, 0, 0, 0], scipy.stats.uniform(-0.5, 1).cdf).pvalue > 1e-3


def test_dropped_pixels_are_the_images_darkest():
    images = np.float32(np.random.default_rng(0).uniform(1, 2, size=(200, 8, 8, 3)))
    out = np.asarray(drop_pixels(KEYS[:200], jnp.asarray(images), 0.1))
    dead = (out != images).any(axis=-1)
    assert abs(dead.mean() - 0.1) < 0.01
    darkest = np.broadcast_to(images.min(axis=(1, 2), keepdims=True), images.shape)
    np.testing.assert_array_equal(out[dead], darkest[dead])


def test_a_centre_window_by_hand():
    np.testing.assert_array_equal(
        centre_window(4, 8, 0.5),
        np.outer([0, 1, 1, 0], [0, 0, 1, 1, 1, 1, 0, 0]),
    )
    # Half of the 8 pixels are inside, up to 2 pixels from the centre; the edge extends to 4.
    soft = centre_window(1, 8, 0.5, 0.25)[0] / centre_window(1, 8, 0.5, 0.25)[0].max()
    falls = [np.cos(np.pi * beyond / 4) ** 2 for beyond in (0.5, 1.5)]
    np.testing.assert_allclose(soft, [*falls[::-1], 1, 1, 1, 1, *falls], rtol=1e-6)


def test_the_background_goes_from_some_images_entirely():
    images = jnp.ones((2000, 4, 4, 1))
    out = np.asarray(suppress_background(KEYS, images, 0.3, 0.5, 0.0))[..., 0]
    window = centre_window(4, 4, 0.5)
    gone = (out == window).all(axis=(1, 2))
    assert ((out == 1).all(axis=(1, 2)) | gone).all()
    assert abs(gone.mean() - 0.3) < 0.03


@pytest.mark.parametrize("shape", [(7, 9), (8, 8), (2, 5)])
def test_warp_is_scipys(shape):
    rng = np.random.default_rng(0)
    image = np.float32(rng.normal(size=(*shape, 3)))
    matrix, shift = np.eye(2) + 0.3 * rng.normal(size=(2, 2)), rng.normal(size=2)
    out = warp(jnp.asarray(image), jnp.float32(matrix), jnp.float32(shift))
    centre = (np.array(shape) - 1) / 2
    from_corner = centre + shift - matrix @ centre
    for channel in range(3):
        expected = scipy.ndimage.affine_transform(
            np.float64(image[..., channel]), matrix, from_corner, order=1, mode="mirror"
        )
        np.testing.assert_allclose(out[..., channel], expected, atol=1e-4)


def test_a_subpixel_shift_moves_a_ramp_down_and_right():
    y, x = np.mgrid[:9, :9].astype(np.float32)
    ramps = jnp.broadcast_to(jnp.stack([y, x], axis=-1), (500, 9, 9, 2))
    out = np.asarray(shift_subpixel(KEYS[:500], ramps, 0.8))[:, 2:-2, 2:-2]
    by = np.asarray(ramps)[:, 2:-2, 2:-2] - out
    np.testing.assert_allclose(np.ptp(by, axis=(1, 2)), 0, atol=1e-5)
    assert (
        scipy.stats.kstest(by[:, 0, 0, :].ravel(), scipy.stats.uniform(-0.8, 1.6).cdf).pvalue > 1e-3
    )
