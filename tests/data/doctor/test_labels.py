"""Labels that may be wrong: their ranking, and corrections by a table."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image

from jaxatr import data
from jaxatr.cli import suspects
from jaxatr.data import corrections, doctor
from jaxatr.data.source import all_options
from jaxatr.data.sources import image_folder

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def drawn():
    """Three classes in a plane of ten dimensions, with labels of which a tenth is flipped."""
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1, 2], 60)
    features = rng.normal(size=(180, 10)).astype(np.float32)
    features[:, :3] += 4 * np.eye(3, dtype=np.float32)[truth]
    flipped = np.zeros(180, bool)
    flipped[rng.choice(180, 18, replace=False)] = True
    labels = np.where(flipped, (truth + rng.integers(1, 3, 180)) % 3, truth)
    return features, labels, truth, flipped


def test_wrong_labels_come_first_with_the_likely_class(drawn):
    features, labels, truth, flipped = drawn
    noise = np.random.default_rng(0).normal(size=(180, 4)).astype(np.float32)
    found = doctor.suspects({"noise": noise, "features": features}, labels)
    assert found.by == "features"
    assert flipped[found.order[:18]].mean() > 0.9
    assert (found.likely[flipped] == truth[flipped]).mean() > 0.9
    assert 0.8 < found.agreement <= 0.9
    assert (np.diff(found.given[found.order]) >= 0).all()


def test_an_examples_own_label_does_not_tell_on_it():
    """Labels drawn at random cannot be predicted, which a fit that had seen them would do."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 200)).astype(np.float32)
    labels = rng.integers(0, 2, 60)
    shares = doctor.labels.out_of_fold(features, labels, strength=1.0)
    assert np.mean(shares.argmax(axis=1) == labels) < 0.75


def test_a_class_of_one_is_refused(drawn):
    with pytest.raises(ValueError, match="classes of .60, 1. examples"):
        doctor.suspects({"features": drawn[0][:61]}, np.repeat([0, 1], [60, 1]))


def dataset(tmp_path, paths=("a/0.png", "b/1.png", "b/2.png")):
    columns = {
        "label": np.array([0, 1, 1]),
        "id": np.arange(3),
        "path": np.array(paths),
        "height": np.full(3, 4),
        "width": np.full(3, 4),
        "channels": np.ones(3, int),
    }
    images = [{"image": np.full((4, 4, 1), i, np.uint8)} for i in range(3)]
    split = data.Split("train", images, columns, ("a", "b"), np.dtype(np.uint8))
    return data.Dataset("set", "1", ("a", "b"), None, None, "f", {"train": split}, (), tmp_path)


def test_a_table_corrects_labels_and_leaves_images_out(tmp_path):
    table = tmp_path / "corrections.csv"
    table.write_text("path,label,likely\na/0.png,b,b\nb/1.png,,a\n")
    before = dataset(tmp_path)
    after = data.corrected(before, table)
    split = after.splits["train"]
    assert split.columns["label"].tolist() == [1, 1] and split.columns["id"].tolist() == [0, 2]
    assert [int(split.image(i).mean()) for i in range(2)] == [0, 2]
    assert after.fingerprint != before.fingerprint
    assert before.splits["train"].columns["label"].tolist() == [0, 1, 1]


def test_labels_of_parquet_may_be_numbers(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    before = dataset(tmp_path)
    split = before.splits["train"]
    split = data.Split("train", split.records, split.columns, ("0", "1"), split.dtype)
    before = dataclasses.replace(before, classes=("0", "1"), splits={"train": split})
    rows = {"path": ["a/0.png", "b/1.png", "b/2.png"], "label": [1, 0, None]}
    parquet.write_table(pyarrow.table(rows), tmp_path / "corrections.parquet")
    after = data.corrected(before, tmp_path / "corrections.parquet").splits["train"]
    assert (after.columns["label"].tolist(), after.columns["id"].tolist()) == ([1, 0], [0, 1])


def test_letters_of_another_unicode_form_name_the_same_file(tmp_path):
    paths = ["a/o\u0308.png", "b/\u0160.png", "b/S\u030c.png"]  # the last two differ in form only
    before = dataset(tmp_path, paths)
    table = tmp_path / "corrections.csv"
    table.write_text("path,label\na/\u00f6.png,b\nb/S\u030c.png,a\n", encoding="utf-8")
    split = data.corrected(before, table).splits["train"]
    assert split.columns["label"].tolist() == [1, 1, 0]
    table.write_text("path,label\na/\u00f6.png,b\na/o\u0308.png,a\n", encoding="utf-8")
    with pytest.raises(ValueError, match="corrections.csv: .* has two labels, 'b' and 'a'"):
        data.corrected(before, table)


@pytest.mark.parametrize(
    ("row", "labels"), [('" a/0.png",b', [1, 1, 1]), ('"a/0.png ",a', [0, 0, 1])]
)
def test_spaces_around_a_path_count_where_a_file_has_them(tmp_path, row, labels):
    before = dataset(tmp_path, [" a/0.png", "a/0.png", "b/1.png"])
    table = tmp_path / "corrections.csv"
    table.write_text(f"path,label\n{row}\n")
    split = data.corrected(before, table).splits["train"]
    assert split.columns["label"].tolist() == labels


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label\nc.png,a\n", "set has no c.png"),
        ("path,label\na/0.png,tank\n", "a/0.png has the label 'tank', wanted one of a, b"),
        ("file,label\na/0.png,a\n", "no column 'path', got file, label"),
        ("path,label\na/0.png,a\na/0.png,b\n", "a/0.png has two labels, 'a' and 'b'"),
        (b"\xff\xfe\x00", "corrections.csv: not UTF-8"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, content, message):
    table = tmp_path / "corrections.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        data.corrected(dataset(tmp_path), table)


def doubted(tmp_path):
    """Ranks the labels of a folder in which one disc is called a ring; returns table and page."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:24, :24] - 11.5
    radius = np.hypot(x, y)
    shapes = {"disc": radius < 8, "=ring, old": (radius < 9) & (radius > 6)}
    for name in shapes:
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(8):
            shape = shapes["disc" if number == 3 else name]
            pixels = rng.integers(0, 60, (24, 24)) + 150 * shape
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"set/{name}/{number}.png")
    folder = image_folder.image_folder(tmp_path / "set", all_options(image_folder.PART, {}))
    table, page = tmp_path / "suspects.csv", tmp_path / "suspects.html"
    suspects.rank(doctor.of_folder(folder, "set"), str(table), "", None, str(page))
    return table, page


def test_the_most_doubtful_labels_are_shown_on_a_page(tmp_path, capsys):
    table, page = doubted(tmp_path)
    first = next(csv.DictReader(table.open()))
    assert (first["path"], first["likely"]) == ("'=ring, old/3.png", "disc")
    text = page.read_text(encoding="utf-8")
    found = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert len(found["chips"]) == 16 and found["classes"] == ["=ring, old", "disc"]
    assert found["chips"][0]["why"].startswith("likely disc (")
    assert f"page: {page}" in capsys.readouterr().out


def test_images_that_cannot_be_read_are_named(tmp_path, capsys):
    table, _ = doubted(tmp_path)
    for number in (0, 1):
        (tmp_path / f"set/disc/{number}.png").write_bytes(b"no image")
    folder = image_folder.image_folder(tmp_path / "set", all_options(image_folder.PART, {}))
    capsys.readouterr()
    suspects.rank(doctor.of_folder(folder, "set"), str(table), "", None)
    assert len(list(csv.DictReader(table.open()))) == 14
    err = capsys.readouterr().err
    assert err.count("warning: left out: disc/") == 2 and str(tmp_path) not in err
    for path in (tmp_path / "set").rglob("*.png"):
        path.write_bytes(b"no image")
    folder = image_folder.image_folder(tmp_path / "set", all_options(image_folder.PART, {}))
    with pytest.raises(ValueError, match="set: no image can be read"):
        suspects.rank(doctor.of_folder(folder, "set"), str(table), "", None)


def test_images_that_the_crop_refuses_are_left_out(tmp_path, capsys):
    table, _ = doubted(tmp_path)
    Image.new("L", (8, 8)).save(tmp_path / "set/disc/0.png")
    folder = image_folder.image_folder(tmp_path / "set", all_options(image_folder.PART, {}))
    chip = data.Chip(center_crop=16)
    suspects.rank(doctor.of_folder(folder, "set"), str(table), "", chip)
    assert len(list(csv.DictReader(table.open()))) == 15
    assert "left out: disc/0.png: an image of 8x8 is smaller" in capsys.readouterr().err


@pytest.mark.slow  # a browser
def test_corrected_labels_are_saved_and_trained_on(browser, tmp_path):
    _, page = doubted(tmp_path)
    tab = browser.new_page(accept_downloads=True)
    tab.goto(page.as_uri())
    assert not tab.locator("#other").is_visible()
    for key in ("2", "x", "n", "s"):  # the third key does nothing
        tab.keyboard.press(key)
    with tab.expect_download() as download:
        tab.click("#save")
    download.value.save_as(tmp_path / "labels.csv")
    tab.close()
    given = data.open_dataset("image_folder", source=tmp_path / "set", data_dir=tmp_path / "made")
    fixed = corrections.corrected(given, tmp_path / "labels.csv")
    before, after = (sum(map(len, one.splits.values())) for one in (given, fixed))
    assert after == before - 1
    rings = [np.sum(split.columns["label"] == 0) for split in fixed.splits.values()]
    assert sum(rings) in (6, 7)  # one became a disc; what was left out may be another
