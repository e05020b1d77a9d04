"""The geometry in JAX operations against Pillow and NumPy, bit-exact where possible."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxatr.data.chip import Chip
from jaxatr.data.traced_chip import traced_chips

SIDE = 12

CASES = [
    (Chip(size=SIDE, channels=1), (12, 12, 1)),
    (Chip(size=SIDE, channels=1), (40, 31, 1)),
    (Chip(size=SIDE, channels=1), (5, 9, 1)),
    (Chip(size=SIDE, channels=1), (150, 7, 3)),
    (Chip(size=SIDE, square=True, channels=3), (30, 41, 3)),
    (Chip(size=SIDE, square=True, channels=3), (7, 4, 1)),
    (Chip(center_crop=SIDE, channels=1), (12, 12, 1)),
    (Chip(center_crop=SIDE, channels=1), (17, 30, 1)),
    (Chip(center_crop=20, size=SIDE, blank_center=5, channels=1), (25, 31, 1)),
    (Chip(size=SIDE, blank_center=50, channels=1), (25, 60, 1)),
]


def image_of(shape, dtype):
    rng = np.random.default_rng(0)
    if dtype == np.float32:
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.uint16, pytest.param(np.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("chip", "shape"), CASES)
def test_chips_are_those_of_the_host(chip, shape, dtype):
    image = image_of(shape, dtype)
    wanted = chip(image)
    found = np.asarray(traced_chips(chip, jnp.asarray(image)[None], wanted.shape))[0]
    assert found.dtype == np.float32
    if dtype == np.uint8:
        np.testing.assert_array_equal(found, wanted)
    elif dtype == np.uint16:  # Pillow sums in double precision and rounds once
        apart = np.abs(found - wanted)
        assert apart.max() <= 1 and apart.mean() < 0.02
    else:
        np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.slow
def test_every_reduction_has_pillows_rounding():
    """Many sizes are tested, so that a weight that is off by 2⁻²² has an effect somewhere."""
    chip = Chip(size=9, channels=1)
    for side in range(1, 120, 9):
        image = image_of((side, 119 - side, 1), np.uint8)
        found = np.asarray(traced_chips(chip, jnp.asarray(image)[None], (9, 9, 1)))[0]
        np.testing.assert_array_equal(found, chip(image), err_msg=str(side))


def test_a_gray_midway_is_the_even_one():
    colours = np.array([[[500, 0, 0], [0, 500, 0]]], np.uint16)  # 149.5 and 293.5
    chip = Chip(channels=1)
    assert chip(colours).ravel().tolist() == [150, 294]
    found = traced_chips(chip, jnp.asarray(colours)[None], (1, 2, 1))
    assert np.ravel(found).tolist() == [150, 294]
