"""Preparation of a small copy of the database, as by a user."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from jaxatr import data
from jaxatr.data.chip import Chip

ROWS, COLUMNS, FRAMES = 24, 32, 6


class Copy:
    """Writes clips one after the other and records the expected results."""

    def __init__(self, root, files):
        self.root, self.files, self.truth = root, files, {}
        self.rng = np.random.default_rng(0)

    def write(self, path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("latin-1"))

    def clip(self, name, kind, *, image_type=3, frames=FRAMES, with_metric=True, **header):
        camera, most = name[:4], 255 if image_type == 0 else 65535
        dtype = np.uint8 if image_type == 0 else np.uint16
        images = self.rng.integers(0, most, (frames, ROWS, COLUMNS), dtype, endpoint=True)
        targets, corners = {}, []
        for number in range(1, frames + 1):
            x, y = 10 + number % 9, 9 + number % 5
            aspect = round(720 * (number - 1) / frames % 360, 3)
            targets[number] = [self.files.target(kind, pixel=(x, y), aspect=aspect, distance=1234)]
            corners.append((number, 54, x - 5, y - 3))
            box = (y - 3, x - 5, y + 3, x + 5)
            pixels = images[number - 1, box[0] : box[2], box[1] : box[3]]
            self.truth[name, number] = (box, pixels, aspect)
        stack = [[image] for image in images]
        self.write(
            self.root / camera / "arf" / f"{name}.arf", self.files.arf(stack, image_type, **header)
        )
        self.write(self.root / camera / "agt" / f"{name}.agt", self.files.agt(targets))
        if with_metric:
            self.write(self.root / "Metric" / f"{name}.bbox_met", self.files.metric(corners))
        return targets


@pytest.fixture
def copy(tmp_path, dsiac_files):
    """A database of both cameras, two ranges by day and one by night, with three targets."""
    copy = Copy(tmp_path / "ATR Database", dsiac_files)
    for scenario in ("02003", "02007", "01927"):
        for target, kind in (("0001", "PICKUP"), ("0011", "T72"), ("0012", "ZSU23-4")):
            copy.clip(f"cegr{scenario}_{target}", kind)
            copy.clip(f"i1co{scenario}_{target}", kind, image_type=0)
    return copy


def prepared(copy, data_dir, **options):
    skip_corrupt = options.pop("skip_corrupt", False)
    return data.prepare(
        "dsiac", source=copy.root, data_dir=data_dir, options=options, skip_corrupt=skip_corrupt
    )


def report(dataset):
    return json.loads((dataset.directory / "report.json").read_text())


@pytest.mark.parametrize("band, dtype", [("thermal", np.uint16), ("visible", np.uint8)])
def test_every_pixel_and_column(copy, data_dir, band, dtype):
    prepared(copy, data_dir, band=band, size=30)
    dataset = data.open_dataset("dsiac", data_dir=data_dir)
    assert dataset.classes == ("PICKUP", "T72", "ZSU23")
    camera = {"thermal": "cegr", "visible": "i1co"}[band]
    ranges = {"02003": (1000, "day"), "02007": (2000, "day"), "01927": (2000, "night")}
    seen, ids = set(), []
    for turn, split in enumerate(dataset.splits[name] for name in ("train", "test")):
        assert split.dtype == dtype and len(split) == 9 * FRAMES // 2
        for number in range(len(split)):
            example = split[number]
            clip, frame = str(example["clip"]), int(example["frame"])
            box, pixels, aspect = copy.truth[clip, frame]
            square = np.zeros((10, 10), dtype)
            square[2:8] = pixels  # six rows, ten columns
            wanted = Chip(size=30)(square[:, :, None])
            assert example["image"].dtype == dtype
            np.testing.assert_array_equal(example["image"], wanted)
            assert example["frame_box"].tolist() == list(box)
            assert clip.startswith(camera) and example["band"] == band
            metres, time = ranges[clip[4:9]]
            assert (example["range_m"], example["time"]) == (metres, time)
            kind = {"0001": "PICKUP", "0011": "T72", "0012": "ZSU23"}[clip[-4:]]
            assert dataset.classes[example["label"]] == kind
            assert example["aspect_deg"] == pytest.approx(aspect)
            assert example["target_range_m"] == 1234 and example["box_source"] == "metric"
            assert (frame > FRAMES // 2) == turn
            seen.add((clip, frame))
            ids.append(int(example["id"]))
    assert len(seen) == 9 * FRAMES and sorted(ids) == list(range(9 * FRAMES))
    tracks = [set(split.columns["track"].tolist()) for split in dataset.splits.values()]
    assert not tracks[0] & tracks[1] and len(tracks[0]) == len(tracks[1]) == 9


@pytest.mark.slow  # the flags and the set are tested separately
def test_the_command_describes_its_result(copy, data_dir):
    arguments = [f"--source={copy.root}", f"--data_dir={data_dir}", "--band=thermal"]
    arguments += ["--ranges=1000,2000", "--time=day", "--every=2", "--name=atr"]
    line = [sys.executable, "-m", "jaxatr", "prepare", "dsiac", *arguments]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "atr: 3 classes: PICKUP, T72, ZSU23",
        "  test: 6 images, uint16, 224x224x1",
    ]
    assert "  train: 12 images, uint16, 224x224x1" in lines
    said = "targets at another range than their scenario's, in 3 clips"
    assert f"  note: 9 {said} (first: cegr02007_0001 frame 1)" in lines
    split = data.open_dataset("atr", data_dir=data_dir).splits["train"]
    for number in range(len(split)):
        example = split[number]
        _, pixels, _ = copy.truth[str(example["clip"]), int(example["frame"])]
        square = np.zeros((10, 10, 1), np.uint16)
        square[2:8, :, 0] = pixels
        np.testing.assert_array_equal(example["image"], Chip(size=224)(square))


def test_boxes_as_they_are(copy, data_dir):
    split = prepared(copy, data_dir, band="thermal", size=0).splits["train"]
    for number in range(len(split)):
        example = split[number]
        _, pixels, _ = copy.truth[str(example["clip"]), int(example["frame"])]
        np.testing.assert_array_equal(example["image"][:, :, 0], pixels)


def test_the_requested_parts_are_prepared(copy, data_dir):
    train = prepared(copy, data_dir, band="thermal", ranges=[2000], every=2).splits["train"]
    assert set(train.columns["range_m"]) == {2000} and len(train) == 6 * 2
    assert set(train.columns["frame"]) == {1, 3}
    dataset = prepared(copy, data_dir, band="thermal", time="night", classes=["T72", "PICKUP"])
    assert set(dataset.splits["test"].columns["time"]) == {"night"}
    assert dataset.classes == ("PICKUP", "T72")
    found = data.select(train, where={"range_m": 2000, "band": "thermal", "time": "day"})
    assert len(found) == 6
    split = data.known_unknown("random-2/1", ("PICKUP", "T72", "ZSU23"), seed=0)
    assert len(data.select(train, classes=split.known)) == 8


@pytest.mark.slow
def test_two_bands_make_one_set_only_if_they_have_one_type(copy, data_dir):
    with pytest.raises(ValueError, match="uint16 .thermal.*uint8 .visible.*one band at a time"):
        prepared(copy, data_dir)
    for name in ("0001", "0011", "0012"):
        for scenario in ("02003", "02007", "01927"):
            copy.clip(
                f"i1co{scenario}_{name}", {"0001": "PICKUP", "0011": "T72"}.get(name, "ZSU23")
            )
    dataset = prepared(copy, data_dir)
    assert set(dataset.splits["train"].columns["band"]) == {"visible", "thermal"}
    assert len(dataset.splits["train"]) == 18 * FRAMES // 2


@pytest.mark.slow
def test_the_gap_between_the_turns_is_left_out(copy, data_dir):
    copy.clip("cegr02011_0001", "PICKUP", frames=120)
    copy.clip("cegr02011_0011", "T72", frames=120)
    dataset = prepared(copy, data_dir, ranges=[3000], size=8)
    train, test = (set(dataset.splits[name].columns["frame"]) for name in ("train", "test"))
    assert train == set(range(1, 59)) and test == set(range(61, 121))
    told = report(dataset)["skipped"]["targets in the gap between the turns"]
    assert (told["count"], told["first"]) == (4, "cegr02011_0001 frame 59")


def test_flags_and_footers_of_a_clip_are_followed(copy, data_dir):
    files = copy.files
    flags = files.SOURCE | files.COMMENT | files.FOOTERS
    copy.clip("cegr02003_0001", "PICKUP", image_type=5, flags=flags, footer_flags=3)
    train = prepared(copy, data_dir, band="thermal", ranges=[1000], size=0).splits["train"]
    for number in data.select(train, where={"clip": "cegr02003_0001"}):
        _, pixels, _ = copy.truth["cegr02003_0001", int(train[number]["frame"])]
        np.testing.assert_array_equal(train[number]["image"][:, :, 0], pixels)


def test_targets_counted_on_from_the_sensors_frames(copy, data_dir):
    targets = copy.clip("cegr02003_0001", "PICKUP")
    moved = {number + FRAMES - 1: rows for number, rows in targets.items()}
    copy.write(copy.root / "cegr/agt/cegr02003_0001.agt", copy.files.agt(moved))
    dataset = prepared(copy, data_dir, band="thermal", ranges=[1000], size=0)
    split = dataset.splits["test"]
    for number in data.select(split, where={"clip": "cegr02003_0001"}):
        box, pixels, _ = copy.truth["cegr02003_0001", int(split[number]["frame"])]
        np.testing.assert_array_equal(split[number]["image"][:, :, 0], pixels)
    assert any("continue the sensor's numbering" in note for note in dataset.notes)


def test_boxes_are_estimated_where_there_are_none_and_it_is_said(copy, data_dir, dsiac_files):
    shutil.rmtree(copy.root / "Metric")
    target = dsiac_files.target("T72", pixel=(12, 11), aspect=90, distance=30_000)
    text = dsiac_files.agt({n: [target] for n in range(1, FRAMES + 1)}, fov=(3.4, 2.6))
    copy.write(copy.root / "i1co/agt/i1co02003_0011.agt", text)
    dataset = prepared(copy, data_dir, band="visible", ranges=[1000])
    split = dataset.splits["train"]
    row = data.select(split, where={"clip": "i1co02003_0011"})[0]
    wide = COLUMNS * np.degrees(2 * np.arctan(6.59 / 60_000)) / 3.4
    box = split[row]["frame_box"]
    assert split[row]["box_source"] == "dimensions"
    assert (box[1], box[3]) == (np.floor(12.5 - wide / 2), np.ceil(12.5 + wide / 2))
    assert any("boxes estimated from the vehicle's size" in note for note in dataset.notes)
    assert any("another range than their scenario's" in note for note in dataset.notes)
    assert report(dataset)["boxes"] == {"pixbox": 0, "metric": 0, "dimensions": 3 * FRAMES}


def test_everything_left_out_is_recorded(copy, data_dir, dsiac_files):
    root, target = copy.root, dsiac_files.target
    (root / "cegr/agt/cegr02003_0001.agt").unlink()
    frames = {
        1: [target("T72"), target("MTLB", ply=7), target("SHED", ply=8)],
        2: [target("T72", pixel=None)],
        3: [target("T72"), target("T72")],
        4: [target("T72", aspect=None, ply=9)],
        5: [],
        7: [target("T72")],
    }
    copy.write(root / "cegr/agt/cegr02003_0011.agt", dsiac_files.agt(frames))
    for name in ("cegr02002_0001", "holiday"):
        copy.write(root / f"cegr/arf/{name}.arf", b"whatever")
    (root / "cegr/arf/cegr02005_0001.arf").symlink_to(root / "gone")
    dataset = prepared(copy, data_dir, band="thermal", ranges=[1000, 2000])
    told = report(dataset)
    counts = {reason: row["count"] for reason, row in told["skipped"].items()}
    assert counts == {
        "clips without ground truth": 1,
        "targets of class MTLB, which was not requested": 1,
        "targets of no vehicle class, 'SHED'": 1,
        "targets with no PixLoc": 1,
        "targets that share a PlyId": 2,
        "targets with no box, and no size or aspect to estimate it from": 1,
        "frames without a target": 1,
        "frames beyond the end of the clip": 1,
        "frames without ground truth": 1,
        "clips of scenarios without vehicles": 1,
        "files not named like a clip (such as cegr02003_0001)": 1,
        "links to nothing": 1,
    }
    strange = told["skipped"]["clips of scenarios without vehicles"]
    assert strange["in"] == {"cegr/arf/cegr02002_0001.arf": 1}
    clip = next(row for row in told["clips"] if row["clip"] == "cegr02003_0011")
    assert (
        clip["used"] == {"train": 1, "test": 0}
        and clip["skipped"]["targets that share a PlyId"] == 2
    )
    assert "left out: 1 clips without ground truth (first: cegr02003_0001)" in dataset.notes
    why = "targets that share a PlyId, in 1 clips (first: cegr02003_0011 frame 3)"
    assert f"left out: 2 {why}" in dataset.notes and dataset.skipped == ()
    used = sum(sum(row["used"].values()) for row in told["clips"])
    assert used == sum(map(len, dataset.splits.values())) == sum(told["images"].values())


def test_the_ground_truth_counts_more_than_the_clips_name(copy, data_dir, dsiac_files):
    target, root = dsiac_files.target, copy.root / "cegr"
    rows = range(1, FRAMES + 1)
    named = {n: [target(None, PixBox=(3, 4, 8, 9))] for n in rows}
    copy.write(root / "agt/cegr02003_0001.agt", dsiac_files.agt(named))
    other = {n: [target("ZSU23-4", pixel=(10 + n % 9, 9 + n % 5))] for n in rows}
    copy.write(root / "agt/cegr02003_0011.agt", dsiac_files.agt(other))
    copy.clip("cegr02003_0097", "T72")
    nobody = dsiac_files.agt({n: [target(None)] for n in rows})
    copy.write(root / "agt/cegr02003_0097.agt", nobody)
    bands = [[np.zeros((ROWS, COLUMNS), np.uint16)] * 2] * FRAMES
    several = dsiac_files.arf(bands, 10, flags=dsiac_files.BANDS, types=(5, 5))
    copy.write(root / "arf/cegr02003_0012.arf", several)
    dataset = prepared(copy, data_dir, band="thermal", ranges=[1000], size=0)
    assert dataset.classes == ("PICKUP", "ZSU23")
    split = dataset.splits["train"]
    first = split[data.select(split, classes=["PICKUP"])[0]]
    assert (first["clip"], first["box_source"]) == ("cegr02003_0001", "pixbox")
    assert first["frame_box"].tolist() == [4, 3, 10, 9] and first["image"].shape == (6, 6, 1)
    assert set(split.columns["clip"][split.columns["label"] == 1]) == {"cegr02003_0011"}
    told = report(dataset)
    assert set(told["skipped"]) == {"targets of no vehicle class, ''", "clips of several bands"}
    assert "targets of class ZSU23 in a clip of T72" in told["notes"]
    assert "targets without a TgtType, classified by their clip's name" in told["notes"]


def test_a_damaged_clip_stops_it_or_is_listed(copy, data_dir):
    path = copy.root / "cegr/arf/cegr02003_0001.arf"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="cegr02003_0001.arf: byte .*the file ends at byte"):
        prepared(copy, data_dir, band="thermal")
    dataset = prepared(copy, data_dir, band="thermal", skip_corrupt=True)
    assert (
        dataset.skipped[0][0] == "cegr/arf/cegr02003_0001.arf" and "byte" in dataset.skipped[0][1]
    )
    assert "cegr02003_0001" not in set(dataset.splits["train"].columns["clip"])
    again = data.open_dataset("dsiac", data_dir=data_dir)  # opened as it was prepared
    assert again.fingerprint == dataset.fingerprint


def test_pixels_that_are_not_numbers_are_left_out(copy, data_dir, dsiac_files):
    rng = np.random.default_rng(1)
    for name in ("cegr02003_0001", "cegr02003_0011"):
        images = rng.normal(size=(FRAMES, ROWS, COLUMNS)).astype(np.float32)
        images[1] = np.nan
        content = dsiac_files.arf([[image] for image in images], 7)
        copy.write(copy.root / f"cegr/arf/{name}.arf", content)
    dataset = prepared(
        copy, data_dir, band="thermal", ranges=[1000], classes=["PICKUP", "T72"], size=0
    )
    assert dataset.splits["train"].dtype == np.float32
    assert set(dataset.splits["train"].columns["frame"]) == {1, 3}
    told = report(dataset)["skipped"]["targets with a pixel that is not finite in float32"]
    assert told["count"] == 2


def test_names_may_be_in_any_case_and_folder(copy, data_dir, tmp_path):
    flat = tmp_path / "flat"
    for path in copy.root.rglob("*.*"):
        if "cegr" in path.name:
            copy.write(flat / "a" / path.name.upper(), path.read_bytes())
    first = prepared(copy, data_dir, band="thermal")
    second = data.prepare("dsiac", source=flat, data_dir=data_dir / "other")
    assert first.fingerprint == second.fingerprint


def test_it_is_prepared_anew_when_a_file_changes(copy, data_dir):
    first = prepared(copy, data_dir, band="thermal")
    assert data.open_dataset("dsiac", data_dir=data_dir).directory == first.directory
    copy.clip("cegr02003_0001", "PICKUP")
    second = data.open_dataset("dsiac", data_dir=data_dir)
    assert second.fingerprint != first.fingerprint
    assert set(second.splits["train"].columns["band"]) == {"thermal"}
    shutil.rmtree(copy.root)
    assert data.open_dataset("dsiac", data_dir=data_dir).fingerprint == second.fingerprint


@pytest.mark.parametrize(
    "options, match",
    [
        (
            {"band": "infrared"},
            "band: got .'infrared'., wanted some of .'visible', 'thermal'",
        ),
        ({"time": "noon"}, "time: got .'noon'."),
        ({"ranges": [1200]}, "ranges: got .1200., wanted some of .1000, 1500"),
        ({"ranges": []}, "ranges: got .., wanted"),
        ({"ranges": [1000, 1000]}, "ranges: got .1000, 1000., wanted .* each once"),
        ({"ranges": 1}, "ranges: got 1, wanted a value like"),
        ({"ranges": [[1000]]}, "ranges: got ..1000.., wanted"),
        ({"every": 0}, "every: got 0, wanted a whole number from 1"),
        ({"size": -1}, "size: got -1"),
        ({"classes": ["T80"]}, "classes: got .'T80'."),
        ({"bands": "visible"}, "dsiac has no option 'bands'; did you mean 'band'"),
        ({"band": "thermal", "ranges": [5000]}, "usable targets of 0 classes"),
        ({"band": "thermal", "classes": ["T72"]}, "targets of 1 classes .*PICKUP, which was not"),
        ({"band": "thermal", "every": 100}, "nothing is left of the test split"),
    ],
)
def test_invalid_options_are_refused(copy, data_dir, options, match):
    with pytest.raises(ValueError, match=match):
        prepared(copy, data_dir, **options)


def test_a_folder_without_imagery_and_files_of_one_name_are_refused(copy, data_dir, tmp_path):
    with pytest.raises(ValueError, match="no imagery below .*looked for cegr/arf"):
        data.prepare("dsiac", source=copy.root / "Metric", data_dir=data_dir)
    with pytest.raises(ValueError, match="there is no folder"):
        data.prepare("dsiac", source=tmp_path / "gone", data_dir=data_dir)
    copy.write(copy.root / "again/CEGR02003_0001.ARF", b"")
    with pytest.raises(ValueError, match="have the same name"):
        prepared(copy, data_dir, band="thermal")


def test_links_that_lead_out_are_followed(copy, data_dir, tmp_path):
    copy.write(tmp_path / "outside/cegr02003_0001.arf", b"")
    (copy.root / "cegr/arf/inside.arf").symlink_to(copy.root / "cegr/arf/cegr02003_0001.arf")
    prepared(copy, data_dir, band="thermal")
    (copy.root / "more").symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="more/cegr02003_0001.arf.* have the same name"):
        prepared(copy, data_dir, band="thermal")


def test_it_must_be_prepared_before_it_is_opened_without_a_source(data_dir):
    match = "dsiac needs a source, the folder of the database: --data_source=PATH"
    with pytest.raises(ValueError, match=match):
        data.open_dataset("dsiac", data_dir=data_dir)
    with pytest.raises(ValueError, match="dsiac needs a source"):
        data.prepare("dsiac", data_dir=data_dir)


def test_each_band_can_have_a_name(copy, data_dir):
    for band in ("visible", "thermal"):
        options = {"band": band}
        data.prepare(
            "dsiac", source=copy.root, data_dir=data_dir, options=options, as_name=f"atr_{band}"
        )
    visible, thermal = (
        data.open_dataset(f"atr_{b}", data_dir=data_dir) for b in ("visible", "thermal")
    )
    assert visible.splits["train"].dtype == np.uint8
    assert thermal.splits["train"].dtype == np.uint16
