import importlib

import numpy as np
import pytest
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jaxatr.data.sources import simulated
from jaxatr.data.sources.simulated import sensor, views
from jaxatr.data.sources.simulated.vehicles import FLEET

KEYS = {
    "image", "mask", "box", "label", "id", "range_m", "band", "track", "frame", "aspect_deg"
}  # fmt: skip
WINDOW = {"crop": "window"}  # the crop by the box is tested in test_framing.py


@pytest.fixture(scope="module")
def small():
    """Returns both splits with few aspects of all vehicles, ranges and bands."""
    return {split: simulated.generate(split, aspects=3, **WINDOW) for split in simulated.SPLITS}


def test_examples_have_the_promised_fields(small):
    train = small["train"]
    assert set(train) == KEYS
    assert train["image"].shape == train["mask"].shape == (8 * 5 * 2 * 3, 64, 64, 1)
    assert train["image"].dtype == train["mask"].dtype == np.uint8
    assert set(np.unique(train["mask"])) == {0, 1}
    assert train["box"].dtype == train["aspect_deg"].dtype == np.float32
    for name in ("label", "id", "range_m", "band", "track", "frame"):
        assert train[name].dtype == np.int32
    assert set(train["range_m"]) == {1000, 2000, 3000, 4000, 5000}
    assert simulated.VEHICLES == (
        "PICKUP", "SUV", "BTR70", "BRDM2", "BMP2", "T72", "ZSU23", "2S3"
    )  # fmt: skip


def test_a_track_is_one_turn(small):
    train = small["train"]
    assert len(np.unique(train["id"])) == len(train["id"])
    for track in np.unique(train["track"]):
        turn = {name: train[name][train["track"] == track] for name in KEYS}
        assert all(len(set(turn[name])) == 1 for name in ("label", "range_m", "band"))
        np.testing.assert_array_equal(turn["frame"], range(3))
        np.testing.assert_array_equal(turn["aspect_deg"], [0, 120, 240])


def test_splits_share_no_aspect_id_track_or_clutter(small):
    train, test = small["train"], small["test"]
    np.testing.assert_array_equal(np.unique(test["aspect_deg"]), [60, 180, 300])
    for name in ("id", "track"):
        assert not set(train[name]) & set(test[name])
    seeds = [
        view.seed
        for split in simulated.SPLITS
        for view in views._views(split, (1000, 5000), simulated.BANDS, 6, 0)
    ]
    assert len(set(seeds)) == len(seeds) == 2 * 8 * 2 * 2 * 6
    # The corners never show a target; shared clutter would make them correlate.
    corners = [
        s["image"][s["band"] == 0][:, :14, :14, 0].reshape(-1, 196).astype(float)
        for s in (train, test)
    ]
    corners = [(c - c.mean(1, keepdims=True)) / c.std(1, keepdims=True) for c in corners]
    assert np.abs(corners[0] @ corners[1].T / 196).max() < 0.95


def test_generation_is_a_function_of_the_seed_alone(small):
    def part(**options):
        wanted = {"ranges": (3000,), "bands": ("thermal",), "aspects": 3} | WINDOW | options
        return simulated.generate("test", **wanted)

    whole = small["test"]
    chosen = (whole["range_m"] == 3000) & (whole["band"] == 1)
    alone = part()
    for name in KEYS:
        np.testing.assert_array_equal(alone[name], whole[name][chosen], err_msg=name)
    other = part(seed=1)["image"]
    changed = np.mean(other != alone["image"], axis=(1, 2, 3))
    assert changed.min() > 0.5


def test_masks_lie_in_their_boxes_and_fill_them(small):
    for split in small.values():
        for mask, box in zip(split["mask"][..., 0], split["box"], strict=True):
            y0, x0, y1, x1 = box
            assert 0 <= y0 < y1 <= 64 and 0 <= x0 < x1 <= 64
            rows, columns = np.nonzero(mask)
            assert rows.min() >= np.floor(y0) and rows.max() < np.ceil(y1)
            assert columns.min() >= np.floor(x0) and columns.max() < np.ceil(x1)
            whole = (np.ceil(y1) - np.floor(y0)) * (np.ceil(x1) - np.floor(x0))
            assert mask.sum() > 0.04 * whole


@pytest.mark.parametrize("band", [0, 1])
def test_masks_fit_the_pixels_that_the_target_changes(band, monkeypatch):
    """Compares views with the same scenes and draws without the target."""
    views = [
        simulated.View(vehicle, aspect, range_m, band, (vehicle, range_m))
        for vehicle in (0, 5, 7)
        for range_m in (1000, 3000)
        for aspect in (30.0, 200.0)
    ]
    chips = simulated.render(views, **WINDOW)
    render = importlib.import_module("jaxatr.data.sources.simulated.render")
    monkeypatch.setattr(render, "composed", lambda pose, seen, cover: cover)
    bare = simulated.render(views, **WINDOW)["image"]
    changed = np.abs(chips["image"].astype(float) - bare)[..., 0]
    for view, change, mask in zip(views, changed, chips["mask"][..., 0], strict=True):
        share = np.sum(change * mask) / change.sum()
        assert share > (0.85 if view.range_m == 1000 else 0.65)
        # Only the optics' blur, up to two pixels, and guns thinner than half a pixel lie outside.
        near = ndimage.binary_dilation(mask, iterations=2)
        assert np.sum(change * near) > 0.96 * change.sum()
        for shift in ((2, 0), (-2, 0), (0, 2), (0, -2)):
            moved = np.roll(mask, shift, axis=(0, 1))
            assert np.sum(change * moved) / change.sum() < share


def test_the_target_shrinks_with_the_square_of_the_range(small):
    masks, ranges = small["train"]["mask"], small["train"]["range_m"]
    area = {r: masks[ranges == r].sum(axis=(1, 2, 3)).mean() for r in np.unique(ranges)}
    for range_m, pixels in area.items():
        assert pixels * (range_m / 1000) ** 2 == pytest.approx(area[1000], rel=0.2)


@pytest.mark.parametrize("vehicle", [0, 2, 3])  # no gun reaches beyond these hulls
@pytest.mark.parametrize("aspect,axis", [(90.0, 0), (0.0, 1)])
def test_boxes_have_the_true_size(vehicle, aspect, axis):
    views = [simulated.View(vehicle, aspect, 1000, 0, (seed,)) for seed in range(6)]
    boxes = simulated.render(views, **WINDOW)["box"]
    chip_pixel = sensor.pixel_size(1000) * sensor.WINDOW / 64
    widths = (boxes[:, 3] - boxes[:, 1]) * chip_pixel
    # Ray spacing of half a sensor pixel at either end.
    np.testing.assert_allclose(widths, FLEET[vehicle].size[axis], atol=0.1)
    heights = (boxes[:, 2] - boxes[:, 0]) * chip_pixel
    depth = FLEET[vehicle].size[1 - axis] * np.sin(np.radians(9))
    assert np.all(heights > FLEET[vehicle].size[2] - 0.15)
    assert np.all(heights < FLEET[vehicle].size[2] + depth + 0.15)


def test_chips_of_another_size_show_the_same_window():
    views = [simulated.View(4, 40.0, 1000, 0, (1, 2))]
    small, large = (simulated.render(views, size, **WINDOW) for size in (64, sensor.WINDOW))
    assert large["image"].shape == (1, 100, 100, 1)
    np.testing.assert_allclose(large["box"] * 64 / 100, small["box"], rtol=1e-5)
    averaged = sensor.chip(large["image"][0, ..., 0].astype(np.float32), 64)
    np.testing.assert_allclose(averaged, small["image"][0, ..., 0], atol=1.1)


def test_the_engine_glows_at_its_end_of_the_vehicle():
    """At 90° the front is on the left: cars' engines glow on the left, a T72's on the right."""
    for vehicle, side in ((0, "left"), (2, "right"), (5, "right")):
        views = [simulated.View(vehicle, 90.0, 1000, 1, (5, seed)) for seed in range(12)]
        chips = simulated.render(views, **WINDOW)
        warmer = 0
        for image, box in zip(chips["image"][..., 0], chips["box"], strict=True):
            top, left, bottom, right = np.rint(box).astype(int)
            third = 4 if vehicle != 5 else 6
            hull = slice(left, right) if vehicle != 5 else slice(right - 41, right)
            target = image[top:bottom, hull].astype(float)
            width = target.shape[1] // third
            ends = {
                "left": np.percentile(target[:, : 2 * width], 98),
                "right": np.percentile(target[:, -2 * width :], 98),
            }
            warmer += ends[side] == max(ends.values())
        assert warmer >= 10, simulated.VEHICLES[vehicle]


def test_contrast_takes_both_signs(small):
    for band in range(2):
        chosen = (small["train"]["band"] == band) & (small["train"]["range_m"] <= 2000)
        images = small["train"]["image"][chosen].astype(float)
        masks = small["train"]["mask"][chosen].astype(bool)
        brighter = [i[m].mean() > i[~m].mean() for i, m in zip(images, masks, strict=True)]
        assert 0.08 < np.mean(brighter) < 0.92


def test_further_turns_are_drawn_anew_and_train_alone(small):
    options = {"ranges": (3000,), "bands": ("thermal",), "aspects": 3, **WINDOW}
    train, test = (simulated.generate(split, turns=3, **options) for split in simulated.SPLITS)
    assert len(test["id"]) == 24 and len(train["id"]) == len(set(train["id"])) == 72
    first = (small["train"]["range_m"] == 3000) & (small["train"]["band"] == 1)
    np.testing.assert_array_equal(train["image"][:24], small["train"]["image"][first])
    assert len(set(train["track"])) == 24 and not set(train["id"]) & set(test["id"])
    np.testing.assert_array_equal(
        train["aspect_deg"].reshape(3, 24), [train["aspect_deg"][:24]] * 3
    )
    for one, other in ((0, 1), (1, 2)):
        images = train["image"].reshape(3, 24, -1)
        assert np.mean(images[one] != images[other]) > 0.5


FAST = ((1000, "visible"),)


def _global_statistics(images):
    pixels = images.reshape(len(images), -1).astype(float)
    histogram = np.stack([np.histogram(p, 32, (0, 256))[0] for p in pixels]) / pixels.shape[1]
    spread = np.percentile(pixels, [0, 1, 5, 25, 50, 75, 95, 99, 100], axis=1).T
    moments = np.stack([pixels.mean(axis=1), pixels.std(axis=1)], axis=1)
    return np.concatenate([moments, spread, histogram], axis=1)


@pytest.mark.parametrize(
    "range_m, band",
    [
        pytest.param(
            range_m,
            band,
            marks=() if (range_m, band) in FAST else pytest.mark.slow,
        )
        for range_m in (1000, 2000, 3000, 4000, 5000)
        for band in simulated.BANDS
    ],
)
def test_global_statistics_do_not_give_the_class_away(range_m, band):
    train, test = (
        simulated.generate(split, ranges=(range_m,), bands=(band,), aspects=16, **WINDOW)
        for split in simulated.SPLITS
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    model.fit(_global_statistics(train["image"]), train["label"])
    assert model.score(_global_statistics(test["image"]), test["label"]) < 0.6


@pytest.mark.parametrize(
    "split,options,message",
    [
        ("val", {}, r"split: got \['val'\], wanted some of \['train', 'test', 'decoys'\]"),
        ("train", {"ranges": (1200,)}, r"ranges: got \[1200\], wanted some of \[1000"),
        ("train", {"ranges": ()}, r"ranges: got \[\]"),
        ("train", {"bands": ("visible", "visible")}, "each once"),
        ("train", {"bands": ("radar",)}, r"bands: got \['radar'\]"),
        ("train", {"aspects": 0}, "aspects: got 0, wanted 1 to 3600"),
        ("train", {"seed": -1}, "seed: got -1"),
        ("train", {"turns": 0}, "turns: got 0, wanted 1 to 100"),
        ("train", {"aspects": 1, "crop": "Box"}, "crop: got 'Box', wanted one of box, window"),
        ("train", {"aspects": 1, "size": 0}, "size: got 0, wanted at least 1 pixel"),
        ("train", {"aspects": 1, "surround": -1}, "surround: got -1 with crop='box', wanted 0 or"),
        ("train", {"aspects": 1, "surround": 4, **WINDOW}, "surround: got 4 with crop='window'"),
    ],
)
def test_views_that_cannot_be_rendered_are_refused(split, options, message):
    with pytest.raises(ValueError, match=message):
        simulated.generate(split, **options)
