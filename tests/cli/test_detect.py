"""The command detect, and the decision of a recogniser about what a detector found."""

import csv
import json

import numpy as np
import pytest
import tifffile
from PIL import Image

import jaxatr
from jaxatr import data
from jaxatr.cli import detect, detections
from jaxatr.data.annotations import read_annotations

SIDE = 16


@pytest.fixture
def bright(make_bright, monkeypatch):
    """A detector without a network, which the command loads from any folder."""
    found = make_bright()
    monkeypatch.setattr(detections.Detector, "load", classmethod(lambda *_, **__: found))
    return found


@pytest.fixture
def recogniser(earlier, monkeypatch):
    """A recogniser of chips of 16 pixels."""
    found = jaxatr.load(earlier / "open_set", score="cbc")
    monkeypatch.setattr(detections.runs, "load_predictor", lambda *_, **__: found)
    return found


@pytest.fixture
def chips(earlier):
    return [
        np.maximum(data.read_image(earlier / f"chips/test/{name}/000.png"), 1)
        for name in ("disc", "cross")
    ]


def test_an_engine_is_that_of_both_networks(bright, recogniser, monkeypatch, flags_of, tmp_path):
    asked = []

    def loading(found):
        return lambda *_, **options: asked.append(options["runtime"]) or found

    monkeypatch.setattr(detections.Detector, "load", loading(bright))
    monkeypatch.setattr(detections.runs, "load_predictor", loading(recogniser))
    Image.fromarray(np.zeros((40, 60), np.uint8)).save(tmp_path / "a.png")
    given = ["--workdir=d", "--recogniser=r", "--runtime=onnxruntime", tmp_path / "a.png"]
    assert detect.main(flags_of(detect, *given)) == 0
    assert asked == ["onnxruntime"] * 2


def scene_of(chips, width=60, height=40, shift=0):
    pixels = np.zeros((height, width), np.uint8)
    for number, chip in enumerate(chips):
        left = 2 + shift + 24 * number
        pixels[4 + shift : 4 + shift + SIDE, left : left + SIDE] = chip[:, :, 0]
    return pixels


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_recogniser_decides_about_what_is_found_as_about_its_chips(
    bright, recogniser, chips, flags_of, tmp_path, capsys
):
    (tmp_path / "in").mkdir()
    Image.fromarray(scene_of(chips)).save(tmp_path / "in/b.png")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "in/a.png")  # no target
    (tmp_path / "in/c.png").write_bytes((tmp_path / "in/b.png").read_bytes()[:60])
    np.save(tmp_path / "in/d.npy", np.ones((8, 8), np.float32))
    Image.fromarray(np.ones((8, 8), np.uint16)).save(tmp_path / "in/e.png")
    given = ["--workdir=d", "--recogniser=r", f"--out={tmp_path / 't.csv'}"]
    given += [f"--pictures={tmp_path / 'seen'}", tmp_path / "in"]
    assert detect.main(flags_of(detect, *given)) == 0
    told = capsys.readouterr().err
    assert "2 targets in 2 scenes, 3 failed" in told
    for name, reason in (
        ("c.png", "truncated"),
        ("d.npy", "got an image of float32, wanted uint8"),
        ("e.png", "got an image of uint16, wanted uint8"),
    ):
        assert [reason in line for line in told.splitlines() if f"in/{name}: " in line] == [True]
    rows = rows_of(tmp_path / "t.csv")
    assert [row["path"][-5:] for row in rows] == ["b.png", "b.png", "c.png", "d.npy", "e.png"]
    for number, (row, one) in enumerate(zip(rows[:2], recogniser.predict(chips), strict=True)):
        assert row["label"] == one.label and not row["error"]
        assert float(row["known_probability"]) == pytest.approx(one.known_probability, abs=1e-6)
        for name, value in one.probabilities.items():
            assert float(row[f"probability_{name}"]) == pytest.approx(value, abs=1e-6)
        corners = [float(row[name]) for name in ("x0", "y0", "x1", "y1")]
        assert corners == [2 + 24 * number, 4, 18 + 24 * number, 20]
        assert float(row["detection_score"]) == pytest.approx(0.9 - 0.1 * number)
    picture = np.asarray(Image.open(tmp_path / "seen/b.png"))
    assert picture.shape == (40, 60, 3) and not (picture[4, 2:18] == picture[4, 2, :1]).all()
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["a.png", "b.png"]


def test_one_reason_is_one_line_a_scene(
    bright, recogniser, chips, flags_of, tmp_path, capsys, monkeypatch
):
    def prepare(_):
        raise ValueError("it is no chip")

    monkeypatch.setattr(recogniser, "prepare", prepare)
    Image.fromarray(scene_of(chips)).save(tmp_path / "b.png")
    given = ["--workdir=d", "--recogniser=r", f"--out={tmp_path / 't.csv'}", tmp_path / "b.png"]
    assert detect.main(flags_of(detect, *given)) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[-1].endswith("2 targets (2 without a decision) in 1 scenes, 0 failed")
    lines = [line for line in told if "it is no chip" in line]
    assert lines == [f"warning: {tmp_path / 'b.png'}: 2,4,18,20 and 1 more: it is no chip"]
    assert [row["error"] for row in rows_of(tmp_path / "t.csv")] == ["it is no chip"] * 2


def test_scenes_and_their_table_are_not_replaced(bright, flags_of, tmp_path):
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path\na.png\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    table = tmp_path / "list.csv"
    for scenes in (tmp_path, tmp_path / "a.png", table):
        with pytest.raises(ValueError, match="holds the scenes, wanted another folder"):
            detect.main(flags_of(detect, "--workdir=d", f"--pictures={tmp_path}", scenes))
    with pytest.raises(ValueError, match="list.csv: is read as"):
        detect.main(flags_of(detect, "--workdir=d", f"--out={table}", table))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_a_target_the_table_has_its_columns_alone(bright, flags_of, tmp_path, capsys):
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "a.png")
    for suffix in (".csv", ".parquet", ".json", ".geojson"):
        out = tmp_path / f"t{suffix}"
        given = ("--workdir=d", f"--out={out}", tmp_path / "a.png")
        assert detect.main(flags_of(detect, *given)) == 0
    wanted = "path,error,x0,y0,x1,y1,detection_score,label,nearest,known_probability,"
    wanted += "probability_dim,probability_light,time,source,run\n"
    assert (tmp_path / "t.csv").read_text() == wanted
    pyarrow = pytest.importorskip("pyarrow.parquet")
    assert str(pyarrow.read_table(tmp_path / "t.parquet").schema.field("x0").type) == "double"
    assert json.loads((tmp_path / "t.geojson").read_text())["features"] == []
    assert len(json.loads((tmp_path / "t.json").read_text())["images"]) == 1
    assert detect.main(flags_of(detect, "--workdir=d", tmp_path / "a.png")) == 0
    assert capsys.readouterr().out.endswith("a.png: no targets\n")
    assert bright.shapes[0] == (32, 32)  # a scene smaller than a tile, and its padding


def test_the_detectors_own_heads_decide(bright, flags_of, tmp_path, capsys):
    pixels = scene_of([np.full((16, 16, 1), value, np.uint8) for value in (100, 180)])
    pixels[30:35, 50:55] = 255  # a target, but of no known class
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert detect.main(flags_of(detect, "--workdir=d", "--json", tmp_path / "a.png")) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert [one["label"] for one in targets] == ["dim", "light", "unknown"]
    assert targets[2]["known_probability"] == pytest.approx(1 / (1 + np.exp(9)))
    with pytest.raises(ValueError, match="t.txt, wanted a name that ends in one of .csv"):
        detect.main(flags_of(detect, "--workdir=d", f"--out={tmp_path}/t.txt", "a.png"))
    assert detect.main(flags_of(detect, "--workdir=d", tmp_path / "none.png")) == 1
    assert detect.main(flags_of(detect, "--workdir=d", f"--out={tmp_path}/t.csv", "no.png")) == 2


def test_maps_and_windows(bright, flags_of, tmp_path):
    pixels = np.zeros((100, 300), np.uint8)
    pixels[50:60, 85:105] = 100  # on a seam of tiles
    keys = (1, 1, 0, 1, 3072, 0, 1, 25832)
    tags = [(33550, 12, 3, (2.0, 2.0, 0.0), True), (34735, 3, len(keys), keys, True)]
    tags += [(33922, 12, 6, (0.0, 0.0, 0.0, 1000.0, 5000.0, 0.0), True)]
    tifffile.imwrite(tmp_path / "a.tif", pixels, extratags=tags, tile=(32, 32))
    given = ("--workdir=d", tmp_path / "a.tif")
    for name in ("t.geojson", "t.json", "t.csv"):
        assert detect.main(flags_of(detect, f"--out={tmp_path / name}", *given)) == 0
    assert set(bright.shapes) == {(64, 64)}
    (row,) = rows_of(tmp_path / "t.csv")
    assert [float(row[name]) for name in ("x0", "y0", "x1", "y1")] == [85, 50, 105, 60]
    assert (float(row["map_x"]), float(row["map_y"])) == (1000 + 2 * 95, 5000 - 2 * 55)
    content = json.loads((tmp_path / "t.geojson").read_text())
    assert content["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::25832"
    ring = np.array(content["features"][0]["geometry"]["coordinates"][0])
    assert ring.tolist()[0] == [1170, 4900] == ring.tolist()[-1]
    x, y = ring.T
    assert np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]) / 2 == 40 * 20  # counter-clockwise
    for name in ("t.geojson", "t.json"):  # the package's own readers take both
        (scene,) = read_annotations(tmp_path, tmp_path / name).scenes
        np.testing.assert_allclose(scene.boxes, [[85, 50, 105, 60]])
        assert scene.labels == ("dim",)


def test_python_reads_windows_and_takes_a_recogniser(make_bright, chips, recogniser, tmp_path):
    detector = make_bright()
    scene = scene_of(chips)
    found = detector.detect(scene, recogniser=recogniser)
    assert [one.label for one in recogniser.predict(chips)] == list(found.labels)
    assert [row["label"] for row in found.rows()] == list(found.labels)
    np.save(tmp_path / "a.npy", scene)
    np.testing.assert_array_equal(detector.detect(tmp_path / "a.npy").boxes, found.boxes)
    with pytest.raises(FileNotFoundError, match="none.png"):
        detector.detect(tmp_path / "none.png")


def test_a_detector_is_no_recogniser(bright, flags_of, unchecked, monkeypatch):
    with pytest.raises(ValueError, match="got a Bright, wanted a recogniser"):
        bright.detect(np.zeros((9, 9), np.uint8), recogniser=bright)
    monkeypatch.setattr(detections.runs, "load_predictor", lambda *_, **__: bright)
    with pytest.raises(ValueError, match="got a Bright, wanted a recogniser"):
        detect.main(flags_of(detect, "--workdir=d", "--recogniser=d", "a.png"))


@pytest.mark.parametrize("kind", ["chips", "tracks", "own heads"])
def test_a_track_is_decided_about_once(
    kind, bright, recogniser, chips, earlier, flags_of, tmp_path, monkeypatch
):
    (tmp_path / "in").mkdir()
    shown = [0, 2, 4, 6, 8, 10]
    for number, shift in enumerate(shown):
        name = tmp_path / f"in/f{number + 6}.png"  # f10 and f11 follow f9
        Image.fromarray(scene_of(chips, shift=shift)).save(name)
    (tmp_path / "in/f8.png").write_bytes(b"not an image")
    given = ["--workdir=d", "--tracks", f"--out={tmp_path / 't.csv'}", tmp_path / "in"]
    if kind == "tracks":
        found = jaxatr.load(earlier / "track")
        monkeypatch.setattr(detections.runs, "load_predictor", lambda *_, **__: found)
    if kind != "own heads":
        given.append("--recogniser=r")
    assert detect.main(flags_of(detect, *given)) == 0
    rows = [row for row in rows_of(tmp_path / "t.csv") if row["path"][-6:] != "f8.png"]
    assert len(rows) == 10 and not any(row["error"] for row in rows)
    for row in rows:
        track = int(row["track"])
        number = int(row["path"].rpartition("/f")[2].removesuffix(".png")) - 6
        assert float(row["x0"]) == 2 + 24 * track + shown[number]
    for track in (0, 1):
        decided = {
            (row["label"], row["known_probability"]) for row in rows if int(row["track"]) == track
        }
        assert len(decided) == 1
        if kind == "chips":  # the same chip in every frame: the mean is that of one
            (one,) = recogniser.predict([chips[track]])
            label, probability = decided.pop()
            assert label == one.label
            assert float(probability) == pytest.approx(one.known_probability, abs=1e-5)
        elif kind == "tracks":
            (one,) = found.predict([[chips[track]] * 5])
            assert decided.pop()[0] == one.label
