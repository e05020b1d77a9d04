"""Whole simulated frames: boxes are where the vehicles are, and draws belong to the scene."""

import numpy as np
import pytest

from jaxatr import data
from jaxatr.data.sources import simulated_scenes
from jaxatr.data.sources.simulated.vehicles import FLEET
from jaxatr.data.sources.simulated_scenes.frames import COLUMNS, ROWS, Ground, render_frame

FEW = {"targets": (4, 4), "decoys": (1, 1), "empty": 0.0}


@pytest.fixture(scope="module")
def scenes():
    return [simulated_scenes.scene("train", number, **FEW) for number in (0, 3)]


def test_a_scene_has_its_vehicles_within_the_frame_and_apart(scenes):
    for scene in scenes:
        assert scene["image"].shape == (ROWS, COLUMNS, 1) and scene["image"].dtype == np.uint8
        boxes, labels = scene["boxes"], scene["labels"]
        assert len(boxes) == len(labels) == len(scene["ranges"]) == 5
        assert np.sum(labels == len(FLEET)) == 1  # the decoy
        assert np.all(boxes[:, :2] >= 0) and np.all(boxes[:, 2:] <= [COLUMNS, ROWS])
        low, high = boxes[:, None, :2], boxes[None, :, 2:]
        apart = np.any(low >= high, axis=2)
        assert np.all(apart | apart.T | np.eye(5, dtype=bool))
    assert [scene["band"] for scene in scenes] == ["visible", "thermal"]


def test_a_vehicle_is_seen_in_its_box_and_nowhere_else():
    vehicle, seed = FLEET[5], (4, 2)
    there = render_frame([vehicle], 1000.0, "thermal", seed)
    inside = np.zeros((ROWS, COLUMNS), bool)
    x0, y0, x1, y1 = np.round(there.boxes[0]).astype(int)
    inside[y0:y1, x0:x1] = True
    image = there.image[..., 0].astype(float)
    around = np.zeros_like(inside)
    around[max(y0 - 15, 0) : y1 + 15, max(x0 - 15, 0) : x1 + 15] = True
    # A warm tank on the ground: the box differs from the ground around it.
    assert image[inside].std() > 3 * image[around & ~inside].std()
    length = 2 * np.tan(np.radians(1.7)) * there.ranges[0] / COLUMNS * (x1 - x0)
    assert 3 < length < 11  # metres, with its gun


def test_farther_vehicles_stand_higher_and_are_smaller():
    ground = Ground(float(np.radians(4.0)), 2000.0)
    first, last = ground.rows()
    assert ground.range_at(COLUMNS / 2) == pytest.approx(2000)
    assert 2500 >= ground.range_at(first) > ground.range_at(last) >= 1600
    # By the law of sines: height over the ground is range times sine of the elevation.
    for row in (first, last):
        height = ground.range_at(row) * np.sin(ground.elevation_at(row))
        assert height == pytest.approx(2000 * np.sin(ground.elevation))
    assert Ground(0.01, 1000.0).range_at(0.0) == np.inf


def test_a_scene_depends_on_its_number_only(scenes):
    again = simulated_scenes.scene("train", 3, **FEW)
    other = simulated_scenes.scene("test", 3, **FEW)
    for name in ("image", "boxes", "labels"):
        np.testing.assert_array_equal(again[name], scenes[1][name])
    assert not np.array_equal(other["image"], again["image"])


def test_a_prepared_set_has_the_scenes_and_its_fingerprint_the_boxes(tmp_path, monkeypatch):
    few = {"train": 2, "test": 1, "ranges": (3000,), "empty": 0.5}
    made = data.open_dataset("simulated_scenes", data_dir=tmp_path / "a", options=few)
    assert made.classes[-1] == simulated_scenes.DECOY
    assert len(made.splits["train"]) == 2 and len(made.splits["test"]) == 1
    own = {name: few[name] for name in ("ranges", "empty")}
    for number, split in ((0, "train"), (1, "train"), (0, "test")):
        scene = simulated_scenes.scene(split, number, **own)
        for name in ("image", "boxes", "labels", "ranges"):
            np.testing.assert_array_equal(made.splits[split][number][name], scene[name])
    original = simulated_scenes.scene

    def moved(*arguments, **options):
        scene = original(*arguments, **options)
        return {**scene, "boxes": scene["boxes"] + 1}

    monkeypatch.setattr(simulated_scenes, "scene", moved)
    other = data.open_dataset("simulated_scenes", data_dir=tmp_path / "b", options=few)
    assert other.fingerprint != made.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": (1234,)}, "ranges: got"),
        ({"bands": ("radar",)}, "bands: got"),
        ({"targets": (3, 1)}, "targets: got"),
        ({"empty": 2.0}, "empty: got 2.0"),
        ({"train": 0}, "train: got 0"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        data.open_dataset("simulated_scenes", data_dir=tmp_path, options=options)
