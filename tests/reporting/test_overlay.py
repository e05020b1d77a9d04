"""The picture of an explanation: uniform colours, and the map in its place."""

import numpy as np
import pytest

from jaxatr.reporting.overlay import colour_map, overlay


def lightness(colours):
    """CIE L* of sRGB colours, which is independent of Oklab."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    y = linear @ [0.2126, 0.7152, 0.0722]
    return np.where(y > 0.008856, 116 * np.cbrt(y) - 16, 903.3 * y)


def test_lightness_rises_evenly():
    values = lightness(colour_map() / 255)
    steps = np.diff(values[::16])
    assert (steps > 0).all() and steps.max() < 1.6 * steps.min()
    assert values[0] < 15 and values[-1] > 85


def test_the_map_lies_over_its_pixels():
    chip = np.full((10, 20, 1), 7, np.uint8)
    saliency = np.zeros((10, 20))
    saliency[2:4, 14:18] = 1
    picture = np.asarray(overlay(chip, saliency, title="t", side=200, share=1.0))
    colours = colour_map().astype(int)
    left, top = 2 * 8 + 200, 26
    shown = picture[top : top + 100, left : left + 200].astype(int)
    assert abs(shown[30, 160] - colours[255]).max() <= 2
    assert abs(shown[80, 40] - colours[0]).max() <= 2


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_any_chip_can_be_shown(channels, dtype):
    chip = (np.random.default_rng(0).random((8, 8, channels)) * 200).astype(dtype)
    assert overlay(chip, np.zeros((8, 8)), title="t", side=64).size[0] > 128
    assert overlay(np.zeros_like(chip), np.ones((8, 8)), title="t", side=64)


def test_maps_that_do_not_fit_are_refused(unchecked):
    chip = np.zeros((8, 8, 1), np.uint8)
    with pytest.raises(ValueError, match=r"saliency: got shape \(4, 4\), wanted \(8, 8\)"):
        overlay(chip, np.zeros((4, 4)), title="t")
    for wrong in (np.full((8, 8), 1.5), np.full((8, 8), np.nan)):
        with pytest.raises(ValueError, match="saliency: got values outside"):
            overlay(chip, wrong, title="t")
