"""Superpixels: their number is sufficient for any size, unit and channels of the chip."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from jaxatr.explain.superpixels import quickshift


def chip(rows, columns, channels, seed=0):
    noise = np.random.default_rng(seed).normal(size=(rows, columns, channels))
    return gaussian_filter(noise, (rows / 16, columns / 16, 0)).astype(np.float32)


@pytest.mark.parametrize("shape", [(24, 24, 1), (32, 32, 3), (64, 64, 1), (40, 64, 3)])
def test_a_small_chip_has_as_many_as_a_photograph(shape):
    labels = quickshift(chip(*shape))
    assert labels.shape == shape[:2] and np.issubdtype(labels.dtype, np.integer)
    assert 15 <= len(np.unique(labels)) <= 150


def test_the_constants_alone_leave_too_few_on_a_chip():
    assert len(np.unique(quickshift(chip(32, 32, 3), least_side=1))) <= 2


def test_neither_the_unit_nor_the_call_counts():
    image = chip(32, 40, 3)
    first = quickshift(image)
    np.testing.assert_array_equal(quickshift(image), first)
    np.testing.assert_array_equal(quickshift(64 * image + 32), first)


def test_an_edge_is_a_border_of_superpixels():
    image = np.zeros((32, 32, 1), np.float32)
    image[:, 16:] = 1
    labels = quickshift(image, ratio=1.0)
    assert not set(labels[:, :15].ravel()) & set(labels[:, 17:].ravel())


def test_a_constant_image():
    assert quickshift(np.full((32, 32, 1), 3, np.float32)).shape == (32, 32)


def test_bands_of_different_units_count_alike(unchecked):
    image = np.zeros((32, 32, 5), np.float32)
    image[:, 16:, 3] = 1e-3  # the edge is in one band, the others are constant
    image[..., 0] = 1e6
    labels = quickshift(image)
    assert not {*labels[:, 15].tolist()} & {*labels[:, 16].tolist()}
    with pytest.raises(ValueError, match=r"got shape \(8, 8\), wanted \[h, w, c\]"):
        quickshift(np.zeros((8, 8), np.float32))
