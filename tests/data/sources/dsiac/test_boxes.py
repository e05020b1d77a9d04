import math

import numpy as np
import pytest

from jaxatr.data.sources import dsiac
from jaxatr.data.sources.dsiac import names
from jaxatr.data.sources.simulated.vehicles import FLEET


def target(pixel=(100.0, 80.0), box=None, aspect=90.0, distance=1000.0):
    aspect, distance = (None if value is None else float(value) for value in (aspect, distance))
    pixel, box = (None if value is None else tuple(map(float, value)) for value in (pixel, box))
    return dsiac.AgtTarget(0, "T72", "1", aspect, distance, pixel, box)


def found(target, corner=None, size=(6.59, 3.59, 2.21), fov=(3.4, 2.6), shape=(512, 640)):
    rows, columns = shape
    corner, size = (value and tuple(map(float, value)) for value in (corner, size))
    return dsiac.find_box(
        target, corner, size, range_m=1000.0, fov_deg=fov, rows=rows, columns=columns
    )


def test_by_its_corner_a_box_is_twice_as_wide_as_the_corner_is_away():
    assert found(target(), corner=(90, 74)) == (74, 90, 86, 110, "metric", False)
    assert found(target(), corner=(110, 86)) == (74, 90, 86, 110, "metric", False)
    assert found(target((100.5, 80)), corner=(90, 74)) == (74, 90, 86, 111, "metric", False)


def test_its_own_box_comes_first_and_holds_its_last_pixels():
    box = found(target(box=(62, 317, 82, 327)), corner=(1, 1))
    assert box == (317, 62, 328, 83, "pixbox", False)
    assert found(target(pixel=None, box=(5, 5, 5, 5))) == (5, 5, 6, 6, "pixbox", False)


@pytest.mark.parametrize("aspect, across", [(0, 3.59), (90, 6.59), (270, 6.59), (180, 3.59)])
def test_an_estimated_box_encloses_the_vehicle(aspect, across):
    box = found(target(aspect=aspect, distance=2000))
    wide = 640 * math.degrees(2 * math.atan(across / 4000)) / 3.4
    high = 512 * math.degrees(2 * math.atan(2.21 / 4000)) / 2.6
    assert box.source == "dimensions"
    assert box.x0 == math.floor(100.5 - wide / 2) and box.x1 == math.ceil(100.5 + wide / 2)
    assert box.y0 == math.floor(80.5 - high / 2) and box.y1 == math.ceil(80.5 + high / 2)


def test_a_target_without_a_range_is_at_its_scenarios():
    assert found(target(distance=None)) == found(target(distance=1000.0))
    assert found(target(), fov=(6.8, 2.6)).x0 > found(target()).x0


@pytest.mark.parametrize(
    "target, corner, size, match",
    [
        (target(pixel=None), (1, 1), None, "no PixLoc"),
        (target(), None, None, "no box, and no size"),
        (target(aspect=None), None, (1, 1, 1), "no box, and no size or aspect"),
        (target(), (100, 70), None, "an empty box"),
        (target(box=(9, 5, 5, 9)), None, None, "an empty box"),
        (target(pixel=(700, 80)), (690, 70), None, "a box outside of the frame"),
        (target(pixel=(-40, 80)), (-50, 70), None, "a box outside of the frame"),
    ],
)
def test_a_missing_box_has_a_reason(target, corner, size, match):
    assert match in found(target, corner, size)


def test_a_box_over_the_edge_is_cut():
    assert found(target(pixel=(2, 510)), corner=(-8, 500)) == (500, 0, 512, 12, "metric", True)


def test_the_sizes_are_the_simulated_vehicles():
    assert {vehicle.name: vehicle.size for vehicle in FLEET}.items() <= names.SIZES_M.items()


@pytest.mark.parametrize(
    "text, kind",
    [("T72", "T72"), ("zsu23-4", "ZSU23"), (" 2S3 ", "2S3"), ("BTR-70", "BTR70"), ("MAN", None)],
)
def test_a_vehicle_by_its_spelling(text, kind):
    assert names.vehicle(text) == kind


def test_scenarios_and_names():
    assert names.SCENARIOS["02003"] == (1000, "day") and names.SCENARIOS["01939"] == (5000, "night")
    assert names.SCENARIOS["02011"] == (3000, "day") and len(names.SCENARIOS) == 18
    name = names.clip_name("I1CO01927_0012")
    assert (name.text, name.band) == ("i1co01927_0012", "visible")
    assert (name.scenario, name.target) == ("01927", "0012")
    assert names.clip_name("cegr02003_0001_copy") is None


def reference_chip(pixels, size):
    """Pads to a square with zeros and resizes with the triangle filter, pixel by pixel."""
    side = max(pixels.shape)
    square = np.zeros((side, side))
    top, left = ((side - length) // 2 for length in pixels.shape)
    square[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    scale = side / size
    reach = max(scale, 1.0)
    weights = np.zeros((size, side))
    for out in range(size):
        centre = (out + 0.5) * scale
        for inside in range(side):
            weights[out, inside] = max(0.0, 1 - abs(inside + 0.5 - centre) / reach)
        weights[out] /= weights[out].sum()
    return weights @ square @ weights.T


@pytest.mark.parametrize("dtype", ["u1", ">u2", ">f4", ">u4", ">f8"])
@pytest.mark.parametrize("shape", [(5, 9), (40, 23), (16, 16)])
def test_a_chip_is_squared_and_resized(dtype, shape):
    rng, rows, columns = np.random.default_rng(0), *shape
    most = {"u1": 255, ">u2": 65535}.get(dtype, 60000)
    frame = rng.integers(0, most, (60, 60), endpoint=True).astype(dtype)
    box = dsiac.Box(7, 3, 7 + rows, 3 + columns, "metric", False)
    chip = dsiac.cut(frame, box, 24)
    wanted = reference_chip(frame[7 : 7 + rows, 3 : 3 + columns].astype(np.float64), 24)
    native = {"u1": np.uint8, ">u2": np.uint16}.get(dtype, np.float32)
    assert chip.dtype == native == dsiac.image_dtype(frame.dtype) and chip.shape == (24, 24, 1)
    step = {np.uint8: 1.01, np.uint16: 0.51}.get(native, 0.02)
    np.testing.assert_allclose(chip[:, :, 0], wanted, atol=step)
    plain = dsiac.cut(frame, box, 0)
    np.testing.assert_array_equal(plain[:, :, 0], frame[7 : 7 + rows, 3 : 3 + columns])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_pixel_that_is_not_a_number_is_refused(value):
    frame = np.full((8, 8), value, ">f8")
    with pytest.raises(ValueError, match="a pixel that is not finite"):
        dsiac.cut(frame, dsiac.Box(1, 1, 5, 5, "metric", False), 4)
