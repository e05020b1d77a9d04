"""Predictions for folders, archives, tables and lists of images."""

import csv
import functools
import json
import os
import shutil
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image

import jaxatr
from jaxatr import data, openset
from jaxatr.cli import predict
from jaxatr.recognition.decision import open_part
from jaxatr.recognition.neighbours import build_examples
from jaxatr.recognition.recogniser import Recogniser
from jaxatr.tasks.embedding.predictor import Retriever
from jaxatr.training import load_run


@pytest.fixture
def flags(flags_of):
    return functools.partial(flags_of, predict)


@pytest.fixture(scope="module")
def folder(chips, tmp_path_factory):
    """Two chips in folders, a corrupt one, a hidden one, and files that are not images."""
    root = tmp_path_factory.mktemp("many") / "chips"
    (root / "a" / "deep").mkdir(parents=True)
    (root / ".hidden").mkdir()
    first, second, third = sorted((chips / "test" / "disc").iterdir())[:3]
    shutil.copy(second, root / "b.png")
    shutil.copy(first, root / "a" / "deep" / "c.PNG")
    shutil.copy(third, root / ".hidden" / "d.png")
    (root / "a" / "broken.png").write_bytes(b"no image")
    for name in ("notes.txt", "more.txt", "README", ".ignored.txt"):
        (root / name).write_text("words")
    return root


ORDER = ("a/broken.png", "a/deep/c.PNG", "b.png")


def test_a_folder_is_searched_in_the_order_of_its_paths(trained_run, folder, flags, capsys):
    assert predict.main(flags(f"--workdir={trained_run}", "--jsonl", folder)) == 1
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["path"] for line in lines] == [f"{folder}/{name}" for name in ORDER[1:]]
    assert f"{folder}: skipped: 2 of type .txt, 1 without a suffix" in printed.err
    assert f"error: {folder}/a/broken.png: not a readable image" in printed.err
    wanted = jaxatr.load(trained_run)([data.read_image(line["path"]) for line in lines])
    for line, one in zip(lines, wanted, strict=True):
        assert line["label"] == one.label and line["score"] == pytest.approx(one.score, rel=1e-5)


def test_an_archive_is_predicted_as_the_folder_in_it(
    trained_run, folder, flags, capsys, tmp_path, monkeypatch
):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    packed = tmp_path / "chips.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ORDER:
            archive.write(folder / name, name)
    out = tmp_path / "table.jsonl"
    code = predict.main(flags(f"--workdir={trained_run}", f"--out={out}", packed, folder / "b.png"))
    assert code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["path"] for row in rows] == [
        *(f"{packed}/{name}" for name in ORDER),
        str(folder / "b.png"),
    ]
    assert rows[2].keys() == rows[3].keys() and rows[2]["label"] == rows[3]["label"]
    assert rows[2]["score"] == pytest.approx(rows[3]["score"], rel=1e-5)
    printed = capsys.readouterr()
    assert f"{packed}/a/broken.png: not a readable" in printed.err
    assert str(tmp_path / "scratch") not in printed.err + out.read_text()
    assert not list((tmp_path / "scratch").iterdir())  # nothing is left behind


def read(path):
    if path.suffix == ".csv":
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_has_a_row_of_every_image(trained_run, folder, flags, capsys, tmp_path, suffix):
    out = tmp_path / f"table{suffix}"
    arguments = flags(f"--workdir={trained_run}", "--gamma=0.25", f"--out={out}", folder)
    assert predict.main(arguments) == 0
    printed = capsys.readouterr()
    assert "warning: " in printed.err and not printed.out
    broken, *good = rows = read(out)
    count = Counter(row["label"] for row in good).most_common()
    counts = ", ".join(f"{label} {number}" for label, number in count)
    assert f"{out}: 2 predicted ({counts}), 1 failed" in printed.err
    assert [row["path"] for row in rows] == [f"{folder}/{name}" for name in ORDER]
    assert list(rows[0])[:3] == ["path", "error", "runtime"]
    assert not broken["runtime"] and {row["runtime"] for row in good} == {"jax"}
    assert broken["error"].startswith("not a readable image") and not broken["label"]
    recogniser = jaxatr.load(trained_run, gamma=0.25)
    wanted = recogniser([data.read_image(row["path"]) for row in good])
    for row, one in zip(good, wanted, strict=True):
        assert not row["error"] and row["label"] == one.label and row["decides"] == one.decides
        assert row["known_probability_is"] == one.probability_is
        found = {name: float(row[f"probability_{name}"]) for name in recogniser.classes}
        assert found == pytest.approx(one.probabilities, rel=1e-4)
        assert float(row["score"]) == pytest.approx(one.score, rel=1e-4)
        assert float(row["threshold"]) == pytest.approx(one.threshold)


def test_a_tables_neighbours_have_columns(embedding_run, folder, flags, tmp_path):
    out = tmp_path / "table.jsonl"
    arguments = flags(f"--workdir={embedding_run}", "--neighbours=2", f"--out={out}", folder)
    assert predict.main(arguments) == 0
    row = read(out)[2]
    (match,) = Retriever.load(embedding_run, neighbours=2)([data.read_image(folder / "b.png")])
    assert row["label"] == match.label
    for place, near in enumerate(match.neighbours, 1):
        assert row[f"neighbour_{place}_path"] == near.path
        assert row[f"neighbour_{place}_label"] == near.label
        assert row[f"neighbour_{place}_id"] == near.id
        assert row[f"neighbour_{place}_distance"] == pytest.approx(near.distance, abs=1e-5)


def test_a_table_without_any_image_is_an_error(trained_run, flags, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.zip").write_bytes(b"no archive")
    out = tmp_path / "table.csv"
    inputs = (tmp_path / "empty", tmp_path / "bad.zip", tmp_path / "none.png")
    assert predict.main(flags(f"--workdir={trained_run}", f"--out={out}", *inputs)) == 2
    rows = read(out)
    assert [row["path"] for row in rows] == [str(path) for path in inputs]
    reasons = ("there is no image in it", "not a readable archive", "No such file")
    assert all(row["error"].startswith(why) for row, why in zip(rows, reasons, strict=True))
    assert capsys.readouterr().err.count("warning: ") == 3


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("table.xlsx", r"table.xlsx: wanted a table's name, ending in .csv, .jsonl or .parquet"),
        ("none/table.csv", "there is no folder .*none"),
        (".", "ending in"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_first(flags, tmp_path, out, message):
    with pytest.raises(ValueError, match=message):
        predict.main(flags("--workdir=nowhere", f"--out={tmp_path / out}", "x.png"))


def test_a_folder_that_is_not_writable_is_refused_first(flags, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="table.csv: no files can be written in the folder"):
        predict.main(flags("--workdir=nowhere", f"--out={tmp_path / 'table.csv'}", "x.png"))


def test_parquet_without_its_extra_is_refused(flags, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"jaxatr\[parquet\]"):
        predict.main(flags("--workdir=nowhere", f"--out={tmp_path / 't.parquet'}", "x.png"))


@pytest.mark.parametrize("kind", ["trained_run", "embedding_run"])
def test_a_program_gives_one_image_or_many(kind, request, folder):
    predictor = jaxatr.load(request.getfixturevalue(kind))
    path = folder / "b.png"
    image = data.read_image(path)
    (wanted,) = predictor([image])
    one = Image.fromarray(image[..., 0])
    forms = [path, str(path), one, image, image[..., 0]]
    for form in forms:
        assert predictor.predict(form) == wanted
    for many in (
        forms,
        tuple(forms),
        iter(forms),
        np.stack([image] * 5),
        np.array([str(path)] * 5),
    ):
        found = predictor.predict(many)
        assert isinstance(found, list) and len(found) == 5
        assert [each.label for each in found] == [wanted.label] * 5
    assert predictor.predict([]) == []


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.zeros((24, 24), np.uint8), 3], r"inputs\[1\]: got a int, wanted a path"),
        (np.zeros((24, 24, 5), np.uint8), "input: got an image of 5 bands, wanted 1 band"),
        (np.zeros((24, 24), np.float32), "input: got an image of float32, wanted uint8"),
        (3, "got a int, wanted an input or many"),
        (["nowhere.png"], r"inputs\[0\]: nowhere.png: No such file"),
    ],
)
def test_inputs_that_are_not_images_are_named(trained_run, unchecked, inputs, message):
    with pytest.raises(ValueError, match=message):
        jaxatr.load(trained_run).predict(inputs)


def test_a_recogniser_lists_the_nearest_training_chips(
    trained_run, folder, flags, capsys, tmp_path
):
    run = tmp_path / "run"
    shutil.copytree(trained_run, run, ignore=shutil.ignore_patterns("nearest_chips*"))
    recogniser = Recogniser.load(run, neighbours=3)
    images = [data.read_image(f"{folder}/{name}") for name in ORDER[1:]]
    found = recogniser.predict(images)
    part = open_part(load_run(run), {}, "train")
    known = np.flatnonzero(part.labels != openset.UNKNOWN)
    bank, asked = (
        recogniser.features(chips).astype(np.float64)
        for chips in (part.chips(known), np.stack([recogniser.chip(one) for one in images]))
    )
    bank, asked = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (bank, asked))
    distances = np.linalg.norm(asked[:, None] - bank, axis=2)
    ids, paths = part.column("id"), part.column("path")
    for row, prediction in zip(distances, found, strict=True):
        assert [one.distance for one in prediction.neighbours] == pytest.approx(
            np.sort(row)[:3], abs=1e-3
        )
        for one in prediction.neighbours:
            (where,) = np.flatnonzero(ids[known] == one.id)
            assert row[where] == pytest.approx(one.distance, abs=1e-3)
            assert one.label == recogniser.classes[part.labels[known][where]]
            assert one.path == paths[known][where]
        assert "nearest training chip" in prediction._repr_html_()

    out = tmp_path / "table.csv"
    assert predict.main(flags(f"--workdir={run}", "--neighbours=2", f"--out={out}", folder)) == 0
    with out.open(newline="") as file:
        rows = {row["path"]: row for row in csv.DictReader(file)}
    for name, prediction in zip(ORDER[1:], found, strict=True):
        row = rows[f"{folder}/{name}"]
        for number, one in enumerate(prediction.neighbours[:2], 1):
            assert row[f"neighbour_{number}_path"] == one.path
            assert row[f"neighbour_{number}_label"] == one.label
        assert "neighbour_3_path" not in row
    assert rows[f"{folder}/{ORDER[0]}"]["neighbour_1_path"] == ""
    predict.main(flags(f"--workdir={run}", "--neighbours=1", f"{folder}/b.png"))
    nearest = found[1].neighbours[0]
    (saved,) = run.glob("fitted/*/nearest_chips*.npz")
    saved.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match=f"computed again: {saved}: not readable"):
        assert Recogniser.load(run, neighbours=3).predict(images) == found
    assert np.load(saved)["features"].size
    assert f"; nearest: {nearest.label} {nearest.distance:.4f} " in capsys.readouterr().out


def test_features_of_training_chips_are_kept_for_each_precision(trained_run, tmp_path, monkeypatch):
    run = load_run(trained_run)._replace(workdir=tmp_path)

    def axis_of(number, runtime):  # the axis that a network of this engine puts all chips on
        row = np.eye(9, dtype=np.float32)[number]
        made = build_examples(run, {}, lambda chips: np.stack([row] * len(chips)), runtime=runtime)
        return int(made[0].features[0].argmax())

    engines = ("jax", "jax:bfloat16", "onnxruntime:int8")
    assert [axis_of(*one) for one in enumerate(engines)] == [0, 1, 2]
    engines = ("openvino", "onednn:bfloat16", "openvino:int8")  # the same precisions
    assert [axis_of(8, one) for one in engines] == [0, 1, 2]
    monkeypatch.setattr(jaxatr, "__version__", "next")  # which may convert in another way
    assert [axis_of(8, one) for one in engines] == [0, 8, 8]


def test_neighbours_that_there_are_not(trained_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    with pytest.raises(ValueError, match=r"neighbours: got 9999, but there are \d+ training chips"):
        Recogniser.load(run, neighbours=9999)
    with pytest.raises(ValueError, match="neighbours: an ensemble cannot"):
        Recogniser.load([trained_run, trained_run], neighbours=1)
    gone = tmp_path / "gone"
    told = "neighbours: the training data cannot be read.*--data_source"
    with pytest.raises(ValueError, match=told):
        Recogniser.load(trained_run, neighbours=1, source=str(gone), field=False)
