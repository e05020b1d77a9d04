"""Chips cut by the box: their content and resolution, and that the frame is large enough."""

import importlib

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jaxatr.data.sources import simulated
from jaxatr.data.sources.simulated.framing import MARGIN, ByBox, framing
from jaxatr.data.sources.simulated.render import place
from jaxatr.data.sources.simulated.vehicles import FLEET

render = importlib.import_module("jaxatr.data.sources.simulated.render")


def test_at_the_sensors_own_scale_the_chip_is_the_sensors_pixels():
    """A box 10 pixels wide gives a chip 12 pixels wide: rows 1 to 12 and columns 2 to 13."""
    levels = np.random.default_rng(0).uniform(0, 255, (16, 18)).astype(np.float32)
    chip = ByBox(12).chip(levels, np.array([5.0, 3.0, 9.0, 13.0]))
    np.testing.assert_array_equal(chip, np.rint(levels[1:13, 2:14]))
    facts = ByBox(12).facts(np.array([5.0, 3.0, 9.0, 13.0]))
    np.testing.assert_allclose(facts["box"], [4, 1, 8, 11])
    assert facts["sensor_pixels"] == 10


def cubic(x):
    """The bicubic kernel of Keys with a = -1/2."""
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def resampled(row, start, span, side):
    """Resamples one row pixel by pixel, with a kernel as wide as the larger of the two pixels."""
    scale = span / side
    wide, values = max(scale, 1.0), []
    for pixel in range(side):
        centre = start + (pixel + 0.5) * scale
        weights = [cubic((i + 0.5 - centre) / wide) for i in range(len(row))]
        values.append(np.dot(weights, row) / sum(weights))
    return values


@pytest.mark.parametrize("longer", [9.3, 31.7])  # enlarged, and reduced
def test_chips_are_a_plain_bicubic_resampling(longer):
    rng = np.random.default_rng(1)
    levels = np.rint(ndimage.gaussian_filter(rng.uniform(0, 255, (56, 56)), 1)).astype(np.float32)
    cut = ByBox(16, surround=2)
    box = np.array([25.4, 28.2 - longer / 2, 31.4, 28.2 + longer / 2])
    span = (1 + MARGIN) * longer * 20 / 16
    rows = [resampled(row, 28.2 - span / 2, span, 20) for row in levels]
    expected = [resampled(column, 28.4 - span / 2, span, 20) for column in np.transpose(rows)]
    found = cut.chip(levels, box)
    np.testing.assert_allclose(found, np.clip(np.transpose(expected), 0, 255), atol=1.1)


@pytest.mark.parametrize(
    "size,surround", [(64, 0), pytest.param(64, 12, marks=pytest.mark.slow), (24, 6)]
)
def test_the_frame_holds_all_that_a_chip_needs(size, surround):
    cut = framing("box", size, surround)
    reach = 2.0  # the filter's support, in the larger of the two pixels
    for number, range_m in enumerate((1000, 2000, 5000)):
        for vehicle in range(len(FLEET)):
            for aspect in np.arange(0, 360, 24) + 7 * vehicle:
                view = simulated.View(vehicle, float(aspect), range_m, 0, (number, vehicle))
                rng = np.random.default_rng([vehicle, int(aspect)])
                pose = place(view, rng, rng, cut)
                box, side = pose.box(), pose.lattice.side
                span = 1.2 * np.max(box[2:] - box[:2]) * (size + 2 * surround) / size
                need = span / 2 + reach * max(1.0, span / (size + 2 * surround))
                middle = (box[:2] + box[2:]) / 2
                assert np.all(middle - need >= 0) and np.all(middle + need <= side)


@pytest.fixture(scope="module")
def chips():
    """Returns chips of all vehicles, near and far, with surroundings."""
    views = [
        simulated.View(vehicle, aspect, range_m, band, (vehicle, range_m, band))
        for vehicle in range(8)
        for range_m in (1000, 3000)
        for band in (0, 1)
        for aspect in (50.0, 160.0)
    ]
    return views, simulated.render(views, surround=8)


def test_every_target_fills_its_chip(chips):
    views, found = chips
    assert found["image"].shape == found["mask"].shape == (len(views), 80, 80, 1)
    y0, x0, y1, x1 = found["box"].T
    np.testing.assert_allclose(np.maximum(y1 - y0, x1 - x0), 64 / 1.2, rtol=1e-5)
    np.testing.assert_allclose([y0 + y1, x0 + x1], 80, rtol=1e-5)
    for mask, (top, left, bottom, right) in zip(found["mask"][..., 0], found["box"], strict=True):
        rows, columns = np.nonzero(mask)
        # The filter spreads a sensor pixel, which covers three to five chip pixels at 3000 m.
        assert top - 3 <= rows.min() and rows.max() < bottom + 3
        assert left - 3 <= columns.min() and columns.max() < right + 3
        assert mask.sum() > 0.25 * (bottom - top) * (right - left)


def test_the_sensor_has_fewer_pixels_on_a_distant_target(chips):
    views, found = chips
    near = np.array([view.range_m == 1000 for view in views])
    ratio = found["sensor_pixels"][near] / found["sensor_pixels"][~near]
    # Other poses of the turret move a gun's end, most if it points at the sensor.
    np.testing.assert_allclose(ratio, 3, rtol=0.15)


def test_a_distant_chip_has_no_more_detail_than_the_sensor_gave_it(chips):
    """Reducing a chip to sensor pixels and enlarging it restores a far chip, not a near one."""
    views, found = chips
    lost = {1000: [], 3000: []}
    for view, image in zip(views, found["image"][..., 0], strict=True):
        chip = Image.fromarray(image[8:-8, 8:-8].astype(np.float32))
        side = round(64 / 3)
        small = chip.resize((side, side), Image.Resampling.BICUBIC)
        again = np.asarray(small.resize((64, 64), Image.Resampling.BICUBIC))
        middle = np.s_[8:-8, 8:-8]
        residue = np.std((np.asarray(chip) - again)[middle])
        lost[view.range_m].append(residue / np.std(np.asarray(chip)[middle]))
    assert np.median(lost[3000]) < 0.5 * np.median(lost[1000])


def test_the_surroundings_do_not_change_a_chip():
    """The frame is larger and has other draws, but target and light are the same."""
    view = [simulated.View(5, 70.0, 2000, 1, (3,))]
    chip, wide = (simulated.render(view, surround=surround) for surround in (0, 12))
    inside = wide["mask"][:, 12:-12, 12:-12]
    assert np.mean(inside != chip["mask"]) < 0.03
    np.testing.assert_allclose(wide["box"] - 12, chip["box"], atol=0.01)
    target = chip["mask"].astype(bool) & inside.astype(bool)
    levels = [
        set_[target].astype(float) for set_ in (chip["image"], wide["image"][:, 12:-12, 12:-12])
    ]
    assert np.corrcoef(levels)[0, 1] > 0.9


@pytest.mark.slow
def test_the_ground_alone_does_not_name_the_class():
    """The surroundings in a ring around the box do not reveal the class."""
    sets = [
        simulated.generate(split, ranges=(2000,), bands=("visible",), aspects=24, surround=8)
        for split in simulated.SPLITS
    ]

    def ring(images):
        top = images[:, :8].reshape(len(images), -1).astype(float)
        bottom = images[:, -8:].reshape(len(images), -1).astype(float)
        return np.stack([f(p, axis=1) for p in (top, bottom) for f in (np.mean, np.std)], axis=1)

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(ring(sets[0]["image"]), sets[0]["label"])
    assert model.score(ring(sets[1]["image"]), sets[1]["label"]) < 0.3
