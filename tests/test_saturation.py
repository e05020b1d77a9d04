"""Steps of weights in 8 bits: what a product with 255 may sum up to."""

import numpy as np
import pytest

from jaxatr import saturation
from jaxatr.openset.gallery.rounding import rounded


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_no_pair_of_products_exceeds_16_bits(width):
    rows = np.random.default_rng(width).normal(size=(3, 50, width)).astype(np.float32) ** 3
    rows[0, 0], rows[0, 1], rows[0, 2] = 0, 1, -1
    steps = saturation.steps(rows)
    integers = np.round(rows / steps[..., None]).astype(np.int64)
    assert steps.shape == (3, 50) and steps[0, 0] == np.float32(1 / 127)
    assert np.abs(integers).max() <= 127
    even = np.zeros((3, 50, width + width % 2), np.int64)
    even[..., :width] = integers
    pairs = even.reshape(3, 50, -1, 2)
    for side in (pairs, -pairs):  # the worst inputs are 255 beside weights of one sign, else 0
        assert 255 * np.maximum(side, 0).sum(axis=-1).max() < 2**15


def test_weights_apart_or_of_two_signs_keep_8_bits():
    rows = np.float32([[4, 0, 4, 0], [4, -4, 0, 1], [0, 4, 4, 0], [3, 1, 0, 0], [2, 2, 0, 0]])
    assert np.allclose(saturation.steps(rows) * 127, 4)
    assert np.allclose(saturation.steps(rows, paired=False) * 127, [4, 4, 4, 3, 2])


def test_galleries_are_rounded_in_these_steps():
    rows = np.random.default_rng(0).uniform(0.8, 1, (20, 9)).astype(np.float32)
    found = rounded(rows)
    np.testing.assert_array_equal(found.steps, saturation.steps(rows)[:, None])
    assert found.integers[:, :8].reshape(20, -1, 2).astype(int).sum(axis=-1).max() <= 128
    assert (np.abs(found.integers * found.steps - rows) <= 0.5001 * found.steps).all()
