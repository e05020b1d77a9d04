"""Tracks of the simulated sensor: changing and constant conditions, and separate splits."""

import numpy as np
import pytest

from jaxatr.data.sources import simulated, simulated_tracks
from jaxatr.data.sources.simulated.views import _views
from jaxatr.data.sources.simulated_tracks.tracks import Plan

SMALL = {"tracks": 2, "frames": (2, 4), "vehicles": ("PICKUP", "T72")}


@pytest.fixture(scope="module")
def small():
    return {split: simulated_tracks.generate(split, **SMALL) for split in simulated.SPLITS}


def tracks(columns):
    for number in np.unique(columns["track"]):
        rows = columns["track"] == number
        yield {name: values[rows] for name, values in columns.items()}


def test_aspects_are_consecutive_and_the_range_closes(small):
    for split, columns in small.items():
        found = list(tracks(columns))
        assert len(found) == 4
        for track in found:
            length = len(track["id"])
            assert 2 <= length <= 4
            np.testing.assert_array_equal(track["frame"], range(length))
            assert len(set(track["label"])) == len(set(track["band"])) == 1
            np.testing.assert_array_equal(np.diff(track["range_m"]), -250)
            assert 3500 <= track["range_m"][0] <= 5000
            turns = (np.diff(track["aspect_deg"]) + 180) % 360 - 180
            assert abs(turns[0]) == 5 and np.all(turns == turns[0])
            offset = 0 if split == "train" else 2.5
            np.testing.assert_array_equal(track["aspect_deg"] % 5, offset)


def test_lengths_ranges_and_directions_vary():
    plan = Plan(100, (4, 8), (3500, 5000), 250, 0)
    drawn = [plan.track(0, 0, 0, number).views for number in range(100)]
    assert {len(views) for views in drawn} == {4, 5, 6, 7, 8}
    assert {views[0].range_m for views in drawn} == set(range(3500, 5001, 250))
    ahead = [(views[1].aspect_deg - views[0].aspect_deg) % 360 == 5 for views in drawn]
    assert 30 < sum(ahead) < 70
    assert len({views[0].aspect_deg for views in drawn}) > 40


def test_splits_share_no_id_track_aspect_or_draw(small):
    for name in ("id", "track", "aspect_deg"):
        assert not set(small["train"][name]) & set(small["test"][name])
    plan = Plan(3, (2, 4), (3500, 5000), 250, 0)
    every = [
        plan.track(part, vehicle, band, number).views
        for part in (0, 1)
        for vehicle in (0, 5)
        for band in (0, 1)
        for number in range(3)
    ]
    own = [view.seed for views in every for view in views]
    shared = [views[0].shared for views in every]
    turns = [
        view.seed for s in simulated.SPLITS for view in _views(s, (1000,), simulated.BANDS, 6, 0)
    ]
    assert len({*own, *shared, *turns}) == len(own) + len(shared) + len(turns)


def test_a_track_has_one_light_and_every_frame_its_own_ground():
    """Two frames of one pose differ; equal seeds would make them equal."""

    def see(seed, shared):
        view = simulated.View(5, 40.0, 3000, 1, seed, shared)
        return simulated.render([view], crop="window")["image"][0, ..., 0].astype(float)

    frames = [see((1, frame), (7,)) for frame in range(6)]
    assert not np.array_equal(frames[0], frames[1])
    others = [see((1, frame), (8 + frame,)) for frame in range(6)]
    # The gain, the sky and the temperatures set the level of the whole chip.
    spread = [np.std([chip.mean() for chip in chips]) for chips in (frames, others)]
    assert spread[0] < 0.5 * spread[1]


def test_tracks_are_cut_as_single_views_are():
    options = SMALL | {"tracks": 1, "frames": (2, 2), "vehicles": ("T72",)}
    chips, wide = (simulated_tracks.generate("test", **options, surround=s) for s in (0, 4))
    assert (chips["image"].shape, wide["image"].shape) == ((2, 64, 64, 1), (2, 72, 72, 1))
    np.testing.assert_array_equal(chips["sensor_pixels"], wide["sensor_pixels"])
    windows = simulated_tracks.generate("test", **options, crop="window")
    assert "sensor_pixels" not in windows
    # A vehicle fills its chip, and 25 to 40 sensor pixels of the window's 100.
    sides = [np.ptp(set_["box"].reshape(-1, 2, 2), axis=1).max(1) for set_ in (chips, windows)]
    np.testing.assert_allclose(sides[0], 64 / 1.2, rtol=1e-5)
    assert np.all(sides[1] < 0.4 * 64)


def test_single_views_are_unchanged():
    """Mean gray levels of version 1.0.0, which had only windows; new draws would change them."""
    chips = simulated.generate("test", ranges=(2000,), aspects=1, crop="window")["image"]
    expected = [
        105.13, 82.46, 135.38, 91.24, 109.58, 70.73, 109.18, 74.53,
        130.63, 79.95, 131.3, 99.24, 120.56, 93.54, 107.38, 79.35,
    ]  # fmt: skip
    # Gray levels are rounded: a last-bit difference moves a pixel by one, the mean by 1/4096.
    np.testing.assert_allclose(chips.mean((1, 2, 3)), expected, atol=0.02)


def test_generation_is_a_function_of_the_seed_alone(small):
    alone = simulated_tracks.generate("test", **SMALL | {"vehicles": ("T72",)})
    chosen = small["test"]["label"] == 5
    for name, values in alone.items():
        np.testing.assert_array_equal(values, small["test"][name][chosen], err_msg=name)
    other = simulated_tracks.generate("test", **SMALL | {"vehicles": ("T72",), "seed": 1})
    assert not np.array_equal(other["image"], alone["image"])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tracks": 0}, "tracks: got 0, wanted 1 to 1000"),
        ({"frames": (5, 4)}, "frames: got .5, 4., wanted the shortest and longest"),
        ({"frames": (1, 73)}, "frames: got"),
        ({"closing": 0}, "closing: got 0, wanted at least 1 metre"),
        ({"starts": (3600, 3700)}, "starts: got .3600, 3700., wanted two ranges"),
        ({"starts": (5000, 3500)}, "starts: got .5000, 3500., wanted two ranges"),
        ({"starts": (2500, 5000)}, "a track of 8 frames would come as near as 750 m"),
        ({"bands": ("radar",)}, "bands: got"),
        ({"vehicles": ("T55",)}, "vehicles: got"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_invalid_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        simulated_tracks.generate("train", **options)
