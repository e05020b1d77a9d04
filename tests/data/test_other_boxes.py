"""Test chips cut by inaccurate boxes: their content and draws."""

import numpy as np
import pytest

from jaxatr.data import Chip, Split, other_boxes


def split(side=40, ids=(0, 1, 2, 3), channels=1):
    """Images of the pixels' positions: rows in even images, columns in odd ones."""
    rows, columns = np.mgrid[:side, :side].astype(np.float32)[..., None]
    images = [np.repeat(rows if i % 2 == 0 else columns, channels, axis=2) for i in range(len(ids))]
    columns = {
        "id": np.array(ids), "label": np.zeros(len(ids), int), "height": np.full(len(ids), side),
        "width": np.full(len(ids), side), "channels": np.full(len(ids), channels),
        "range_m": np.arange(len(ids)),
    }  # fmt: skip
    records = [{"image": image} for image in images]
    return Split("test", records, columns, ("a",), np.dtype(np.float32))


def placed(chip):
    """Returns centre and pixel size of a chip along a ramp."""
    line = chip[:, :, 0].mean(axis=int(np.ptp(chip[:, 0]) > 0))
    return line.mean(), (line[-2] - line[1]) / (len(line) - 3)


def test_centre_and_size_are_off_by_the_share_of_the_box():
    """A chip of 20 with a margin of a quarter has a box of 16, so a tenth of it is 1.6 pixels."""
    count = 600
    off = other_boxes(split(ids=range(count)), Chip(center_crop=20), error=0.1, margin=0.25)
    found = np.array([placed(off.image(index)) for index in range(count)])
    for values, most in ((found[:, 0] - 19.5, 1.6), (found[:, 1] - 1, 0.1)):
        assert np.abs(values).max() < most + 0.01
        assert values.std() == pytest.approx(most / 3**0.5, rel=0.1)
        assert abs(values.mean()) < 0.1 * most


def test_a_chip_is_drawn_from_its_id_alone():
    first, other = split(ids=(4, 9)), split(ids=(9, 4))
    a, b = (other_boxes(s, Chip(center_crop=20), error=0.2) for s in (first, other))
    assert placed(a.image(0))[1] == pytest.approx(placed(b.image(1))[1], abs=1e-5)
    assert placed(a.image(0))[1] != pytest.approx(placed(a.image(1))[1], abs=1e-3)


def test_columns_stay_and_the_shape_is_the_chips():
    off = other_boxes(split(), Chip(center_crop=20, channels=3), error=0.05)
    assert off.columns["range_m"].tolist() == [0, 1, 2, 3]
    assert off.image(1).shape == (20, 20, 3)
    assert off.chip_shape(np.arange(4), Chip()) == (20, 20, 3)


def test_no_error_is_the_chip():
    off = other_boxes(split(), Chip(center_crop=20), error=0.0)
    np.testing.assert_array_equal(off.image(2), split().image(2)[10:30, 10:30])


@pytest.mark.parametrize("chip, side", [(Chip(center_crop=20), 24), (Chip(size=20), 40)])
def test_images_without_surroundings_are_refused(chip, side):
    with pytest.raises(ValueError, match=r"off by 0.1 need chips .* images of \d+ pixels or more"):
        other_boxes(split(side), chip, error=0.1)
