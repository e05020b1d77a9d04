"""Boxes of scenes in the commands: predict, check, prepare chips."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr import data
from jaxatr.cli import check, predict, predictions, prepare
from jaxatr.data.scene_image import scene_of
from jaxatr.data.sources.scenes import Framing
from jaxatr.tasks.detection.recognised import framing_of


@pytest.fixture
def scenes(earlier, tmp_path):
    """A scene of three chips side by side, with a table of their boxes."""
    chips = [data.read_image(earlier / f"chips/test/{name}/000.png") for name in ("disc", "cross")]
    side = chips[0].shape[0]
    pixels = np.concatenate([*chips, np.zeros_like(chips[0])], axis=1)
    (tmp_path / "scenes").mkdir()
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "scenes/a.png")
    rows = [("a.png", 0, 0, side, side, "disc"), ("a.png", side, 0, side, side, "cross")]
    rows += [("a.png", -9, 0, 5, 5, "disc"), ("b.png", 0, 0, 5, 5, "disc")]
    with open(tmp_path / "boxes.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "x", "y", "width", "height", "label"), *rows])
    return tmp_path


def test_predict_decides_about_each_box_as_about_its_chip(
    earlier, scenes, flags_of, capsys, monkeypatch
):
    run = earlier / "open_set"
    recogniser = jaxatr.load(run, score="cbc")
    monkeypatch.setattr(predictions.runs, "load_predictor", lambda *_, **__: recogniser)
    boxes, out = scenes / "boxes.csv", scenes / "out.csv"
    given = (f"--workdir={run}", f"--boxes={boxes}", f"--out={out}", "--json")
    assert predict.main(flags_of(predict, *given, scenes / "scenes")) == 0
    printed, told = capsys.readouterr()
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [(line["path"], line["x0"]) for line in lines] == [("a.png", 0), ("a.png", 16)]
    assert "line 4 (a.png): the box -9, 0, -4, 5 is outside of its image" in told
    assert "b.png: No such file" in told
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    chips = [earlier / f"chips/test/{name}/000.png" for name in ("disc", "cross")]
    side = float(data.read_image(chips[0]).shape[0])
    wanted = recogniser.predict([str(chip) for chip in chips])
    for number, (row, one) in enumerate(zip(rows, wanted, strict=False)):
        assert row["path"] == "a.png" and row["label"] == one.label and not row["error"]
        assert float(row["known_probability"]) == pytest.approx(one.known_probability, abs=1e-6)
        assert [float(row[name]) for name in ("x0", "y0", "x1", "y1")] == [
            number * side,
            0,
            (number + 1) * side,
            side,
        ]
    assert len(rows) == 4 and all(row["error"] for row in rows[2:])
    (scenes / "scenes/a.png").write_bytes((scenes / "scenes/a.png").read_bytes()[:-30])
    assert predict.main(flags_of(predict, *given, scenes / "scenes")) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
    assert len(told) == 1 and "boxes.csv: line 2 (a.png) and 1 more: not a readable" in told[0]
    nothing = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": []}
    boxes = scenes / "boxes.json"
    boxes.write_text(json.dumps(nothing))
    given = (f"--workdir={run}", f"--boxes={boxes}", f"--out={out}")
    assert predict.main(flags_of(predict, *given, scenes / "scenes")) == 0
    assert len(out.read_text().splitlines()) == 1  # the names of the columns


def test_a_run_of_scenes_has_their_framing(earlier, tmp_path):
    run = earlier / "open_set"
    assert framing_of(str(run)) == Framing(0.0)
    fields = json.loads((run / "config.json").read_text())
    fields["data"] |= {"name": "scenes", "options": {"boxes": "b.csv", "size": 24}}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert framing_of(str(tmp_path)) == Framing(0.2, True, 24)


@pytest.mark.parametrize("name", ["simulated", "simulated_tracks"])
@pytest.mark.parametrize(("crop", "size"), [("box", 32), ("window", 0)])
def test_a_run_of_simulated_vehicles_takes_targets_of_any_range(
    earlier, tmp_path, name, crop, size
):
    """Its chips have one size, and a target in a scene may have a fraction of it."""
    fields = json.loads((earlier / "open_set" / "config.json").read_text())
    fields["data"] |= {"name": name, "box_margin": 0.2}
    fields["data"]["options"] = {"crop": crop, "size": 32}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    framing = framing_of(str(tmp_path))
    assert framing == Framing(0.2, size=size)
    scene = scene_of(np.zeros((60, 80, 1), np.uint8))
    side = framing.chip(scene, np.array([10.0, 20, 30, 28]))[0].shape[0]
    assert side == (32 if crop == "box" else 24)


@pytest.mark.parametrize(
    ("kind", "why"),
    [("FOLDER", "a run on tracks takes folders of images"), ("SCENE", "finds boxes itself")],
)
def test_boxes_are_for_recognisers_of_chips(kind, why, earlier, scenes, flags_of, monkeypatch):
    recogniser = jaxatr.load(earlier / "open_set", score="cbc")
    monkeypatch.setattr(recogniser, "takes", kind)
    monkeypatch.setattr(predictions.runs, "load_predictor", lambda *_, **__: recogniser)
    given = (f"--workdir={earlier / 'open_set'}", f"--boxes={scenes / 'boxes.csv'}", scenes)
    with pytest.raises(ValueError, match=why):
        predict.main(flags_of(predict, *given))


def test_check_names_what_is_wrong_with_boxes(scenes, flags_of, capsys):
    folder = scenes / "scenes"
    for part in ("train", "test"):
        (folder / part).mkdir()
        shutil.copy(folder / "a.png", folder / part / "c.png")
    rows = [("train/c.png", 1, 1, 9, 9, "disc"), ("train/c.png", 1, 1, 9, 9, "disc")]
    rows += [("test/c.png", 1, 1, 9, 9, "disc"), ("test/c.png", 1, 1, 9, 9, "cross")]
    rows += [("test/c.png", -9, 8, 15, 3, "ring")]
    with open(scenes / "boxes.csv", "a", newline="") as file:
        csv.writer(file).writerows(rows)
    assert check.main(flags_of(check, folder, f"--boxes={scenes / 'boxes.csv'}")) == 1
    printed = capsys.readouterr().out
    for wanted in (
        "!! 2 annotations cannot be used: ",
        "boxes.csv: line 4 (a.png): the box -9, 0, -4, 5 is outside of its image of 48x16 pixels",
        "!! 1 scene in two parts: a.png = test/c.png = train/c.png",
        " ! 1 target drawn twice: train/c.png (boxes.csv: line 7)",
        " ! 1 target of two classes: test/c.png (boxes.csv: line 9)",
        "1 box beyond the image, clipped: test/c.png (boxes.csv: line 10)",
        "1 of 7 targets are shorter than 8 pixels",
    ):
        assert wanted in printed


def test_prepare_writes_chips(scenes, flags_of, capsys):
    given = ["chips", f"--data_source={scenes / 'scenes'}", f"--boxes={scenes / 'boxes.csv'}"]
    given += ["--option=box_margin=0", f"--out={scenes / 'out'}"]
    with pytest.raises(ValueError, match="2 annotations cannot be used"):
        prepare.main(flags_of(prepare, *given))
    prepare.main(flags_of(prepare, *given, "--bad_boxes=skip"))
    printed = capsys.readouterr().out
    assert "train/disc: 1 chips" in printed and "skipped b.png: No such file" in printed
    chip = data.read_image(scenes / "out/train/disc/a.png_0000.png")
    assert (chip == data.read_image(scenes / "scenes/a.png")[:, : chip.shape[1]]).all()
    with pytest.raises(ValueError, match="prepare chips needs --out"):
        prepare.main(flags_of(prepare, *given[:3]))
