"""A sprite has every thumbnail at its position."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from jaxatr.reporting.sprite import Thumbnail, sprite


def window(made, row):
    """Cuts out the part of a row that a browser shows: the chip, without its rim."""
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(made.source.split(",")[1]))))
    width, height = (int(side) for side in made.ratio.split(" / "))
    wide, high = (float(size.strip("%")) / 100 for size in made.size.split())
    assert picture.shape[:2] == (pytest.approx(high * height), pytest.approx(wide * width))
    x, y = (float(place.strip("%")) / 100 for place in made.at[row].split())
    left = x * (picture.shape[1] - width)
    top = y * (picture.shape[0] - height)
    assert [left, top] == pytest.approx([round(left), round(top)], abs=0.01)
    left, top = round(left), round(top)
    return picture[top : top + height, left : left + width], picture, (left, top)


@pytest.mark.parametrize("shape", [(64, 64, 1), (24, 24, 1), (13, 40, 1), (32, 20, 3), (7, 7, 3)])
@pytest.mark.parametrize("count", [1, 5])
def test_each_row_is_its_own_chip(run_folder, shape, count):
    rng = np.random.default_rng(0)
    smooth = np.linspace(0, 200, shape[1])[None, :, None] * np.ones(shape)
    images = [np.uint8(smooth * rng.uniform(0.2, 1) + 20 * place) for place in range(count)]
    chips = {10 + 3 * place: Thumbnail("a", image) for place, image in enumerate(images)}
    made = sprite(chips)
    for row, thumbnail in chips.items():
        found, picture, (left, top) = window(made, row)
        wanted = thumbnail.image[:, :, 0] if shape[2] == 1 else thumbnail.image
        assert np.abs(np.int32(found) - np.int32(wanted)).mean() < 4
        rim = np.int32(picture[top - 1, left : left + shape[1]]) - np.int32(wanted[0])
        assert np.abs(rim).mean() < 8  # rounding a window outwards shows nothing else


def test_no_thumbnails(run_folder):
    assert sprite({}).source == ""
