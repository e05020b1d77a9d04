"""RandAugment's operations against Pillow's, on 8-bit images that use the full range."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from PIL import Image, ImageEnhance, ImageOps

from jaxatr.data.augmentations import rand_augment as module
from jaxatr.data.augmentations.rand_augment import PHOTOMETRIC, operate

rand_augment = jax.jit(module.rand_augment, static_argnums=(2, 3))
KEYS = jax.random.split(jax.random.key(1), 400)


def picture(channels, size=16, seed=0):
    rng = np.random.default_rng(seed)
    image = np.uint8(rng.integers(20, 200, (size, size, channels)))
    image[0, 0], image[0, 1] = 0, 255
    return image


def pillow(image):
    return Image.fromarray(image if image.shape[-1] == 3 else image[..., 0])


def array(image):
    found = np.asarray(image, np.float32) / 255
    return found if found.ndim == 3 else found[..., None]


def ours(function, image, level, sign=1):
    level = np.float32(level)
    out = jax.jit(function)(np.float32(image) / 255, level, sign * level)
    return np.clip(out, 0, 1)


@pytest.mark.parametrize("channels", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["brightness", "contrast", "sharpness", "colour"])
def test_enhancements_are_pillows(name, sign, channels):
    if name == "colour" and channels == 1:
        return
    image, level = picture(channels), 0.6
    maker = {"colour": "Color"}.get(name, name.capitalize())
    expected = getattr(ImageEnhance, maker)(pillow(image)).enhance(1 + 0.9 * sign * level)
    out = ours(getattr(module, name), image, level, sign)
    np.testing.assert_allclose(out, array(expected), atol=2.5 / 255)


@pytest.mark.parametrize("level", [0.0, 0.2, 1.0])
def test_solarize_is_pillows(level):
    image = picture(1)
    expected = ImageOps.solarize(pillow(image), threshold=int(255 * (1 - level)) + 1)
    np.testing.assert_allclose(ours(module.solarize, image, level), array(expected), atol=1e-6)


def test_auto_contrast_is_pillows_on_each_channel():
    image = picture(3)
    image[..., 1] = 60 + image[..., 1] // 3  # one channel uses part of the range
    expected = ImageOps.autocontrast(pillow(image))
    np.testing.assert_allclose(
        ours(module.auto_contrast, image, 1.0), array(expected), atol=1.5 / 255
    )
    np.testing.assert_allclose(ours(module.auto_contrast, picture(1), 1), array(picture(1)))


def test_equalized_values_are_mean_ranks():
    image = picture(3)
    expected = [scipy.stats.rankdata(image[..., c]).reshape(16, 16) for c in range(3)]
    expected = (np.stack(expected, axis=-1) - 1) / (16 * 16 - 1)
    np.testing.assert_allclose(ours(module.equalize, image, 1.0), expected, atol=1e-6)
    plain = ImageOps.equalize(pillow(image))
    assert np.abs(ours(module.equalize, image, 1.0) - array(plain)).mean() < 0.03


@pytest.mark.parametrize(("level", "bits"), [(0.0, 8), (0.5, 6), (1.0, 4)])
def test_posterize_leaves_so_many_steps(level, bits):
    ramp = np.linspace(0, 1, 4096, dtype=np.float32).reshape(64, 64, 1)
    out = np.asarray(jax.jit(module.posterize)(ramp, np.float32(level), np.float32(level)))
    values = np.unique(out)
    np.testing.assert_allclose(values, np.arange(2**bits) / (2**bits - 1), atol=1e-6)
    assert np.abs(out - ramp).max() <= 1.01 / (2**bits - 1)


@pytest.mark.parametrize("which", range(5))
def test_geometric_operations_move_a_point_where_they_should(which):
    level, size = 0.5, 33
    y, x = np.mgrid[:size, :size].astype(np.float32) - 16
    ramps = jnp.asarray(np.stack([y, x], axis=-1) / 64 + np.float32(0.5))
    index = jnp.int32(len(PHOTOMETRIC) + which)
    out = operate(ramps, PHOTOMETRIC, index, level, jnp.float32(level))
    old_y, old_x = (np.asarray(out)[18, 12] - 0.5) * 64  # source of the pixel at (2, -4)
    angle = np.deg2rad(30 * level)
    expected = [
        (2, -4 + 0.3 * level * 2),
        (2 + 0.3 * level * -4, -4),
        (2 * np.cos(angle) - 4 * np.sin(angle), -4 * np.cos(angle) - 2 * np.sin(angle)),
        (2, -4 + 150 / 331 * level * size),
        (2 + 150 / 331 * level * size, -4),
    ][which]
    np.testing.assert_allclose((old_y, old_x), expected, atol=1e-3)


@pytest.mark.parametrize("channels", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_values_stay_in_the_images_own_range(channels):
    rng = np.random.default_rng(0)
    images = np.float32(rng.normal(size=(400, 8, 8, channels)) * 50 - 20)
    out = np.asarray(rand_augment(KEYS, images, 2, 30.0))
    low, high = (f(images, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    assert (out >= low - 1e-3).all() and (out <= high + 1e-3).all()
    changed = (np.abs(out - images) > 1e-3).any(axis=(1, 2, 3))
    assert changed.mean() > 0.8


@pytest.mark.parametrize(
    "factor",
    [np.array([0.01, 1, 0.1, 0.03]), pytest.param(np.full(3, 0.01), marks=pytest.mark.slow)],
)
def test_the_unit_of_the_pixels_does_not_matter(factor):
    """Gray and RGB have one unit, each of other bands has its own."""
    shape = (40, 8, 8, len(factor))
    images = np.random.default_rng(0).uniform(0, 255, shape).astype(np.float32)
    plain = np.asarray(rand_augment(KEYS[:40], images, 2, 15.0))
    scaled = rand_augment(KEYS[:40], np.float32(factor) * images - 3, 2, 15.0)
    # A value that lies at a step of equalize or posterize can fall on either side of it.
    off = np.abs(np.float32(factor) * plain - 3 - scaled) > 1e-3
    assert off.mean() < 0.01


def test_all_operations_are_drawn_equally_often():
    flat = np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 4000)
    out = np.asarray(rand_augment(keys, np.broadcast_to(flat, (4000, 8, 8, 1)), 1, 30.0))
    same = (np.abs(out - flat) < 1e-5).all(axis=(1, 2, 3))
    assert abs(same.mean() - 2 / 13) < 0.02  # identity, and auto contrast of one channel
