"""Thumbnails of chips, for display."""

import numpy as np
import pytest

from jaxatr import data


def test_eight_bits_stay_as_they_are():
    chip = np.random.default_rng(0).integers(40, 90, (20, 30, 3), np.uint8)
    np.testing.assert_array_equal(data.thumbnail(chip), chip)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_other_types_are_spread_over_their_own_range(dtype):
    chip = np.linspace(1000, 9000, 64).reshape(8, 8, 1).astype(dtype)
    small = data.thumbnail(chip)
    assert small.dtype == np.uint8 and (small.min(), small.max()) == (0, 255)
    np.testing.assert_allclose(small, (chip - 1000.0) * 255 / 8000, atol=0.51)


def test_a_flat_chip_is_black_and_not_an_error():
    assert not data.thumbnail(np.full((4, 4, 1), 7.5, np.float32)).any()


@pytest.mark.parametrize(("shape", "small"), [((128, 96, 1), (64, 48, 1)), ((64, 64, 3),) * 2])
def test_no_side_is_longer(shape, small):
    assert data.thumbnail(np.zeros(shape, np.uint8)).shape == small


def test_of_other_channels_the_first_is_shown():
    chip = np.random.default_rng(0).integers(0, 255, (9, 9, 2), np.uint8)
    np.testing.assert_array_equal(data.thumbnail(chip), chip[:, :, :1])
