"""Labelled images of a table join the training split."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from jaxatr import data


def dataset(tmp_path, coarse=None):
    columns = {
        "label": np.array([0, 1]),
        "id": np.array([4, 7]),
        "path": np.array(["a/0.png", "b/1.png"]),
        "group": np.array(["one", "two"]),
        "range": np.zeros(2),
        "height": np.full(2, 4),
        "width": np.full(2, 4),
        "channels": np.ones(2, int),
    }
    images = [{"image": np.full((4, 4, 1), i, np.uint8)} for i in range(2)]
    names = ("a", "b")
    splits = {
        name: data.Split(name, images, columns, names, np.dtype(np.uint8))
        for name in ("train", "test")
    }
    of = None if coarse is None else (0, 0)
    return data.Dataset("set", "1", names, coarse, of, "f", splits, (), tmp_path)


def table_of(tmp_path, content, dtype=np.uint8):
    for number in range(3):
        Image.fromarray(np.full((6, 5), 10 + number, dtype)).save(tmp_path / f"{number}.png")
    table = tmp_path / "labels.csv"
    table.write_text(content)
    return table


@pytest.mark.parametrize("path", ["b/1.png", "whole"])
def test_an_image_of_the_set_is_refused(tmp_path, path):
    (tmp_path / "b").mkdir()
    file, table = tmp_path / "b/1.png", tmp_path / "labels.csv"
    table.write_text(f"path,label\n{file if path == 'whole' else path},a\n")
    Image.fromarray(np.full((4, 4), 1, np.uint8)).save(file)
    with pytest.raises(
        ValueError, match=r"1.png is already in set, as b/1.png of its split 'test'"
    ):
        data.added(dataset(tmp_path), table)
    Image.fromarray(np.full((4, 4), 2, np.uint8)).save(file)  # of the same name only
    assert len(data.added(dataset(tmp_path), table).splits["train"]) == 3


@pytest.mark.parametrize(
    ("groups", "refused"), [(["one", "new"], ""), (["two", "new"], ""), (["new", "three"], "three")]
)
def test_a_group_of_another_split_is_refused(tmp_path, groups, refused):
    rows = "".join(f"{number}.png,a,{group}\n" for number, group in enumerate(groups))
    table = table_of(tmp_path, f"path,label,group\n{rows}")
    before = dataset(tmp_path)
    test = before.splits["test"]
    columns = {**test.columns, "group": np.array(["two", "three"])}
    test = data.Split("test", test.records, columns, test.classes, test.dtype)
    before = dataclasses.replace(before, splits={**before.splits, "test": test})
    if refused:
        with pytest.raises(ValueError, match="the group 'three' is in the split 'test' of set"):
            data.added(before, table)
        return
    after = data.added(before, table).splits["train"]
    assert after.columns["group"].tolist() == ["one", "two", *groups]


def test_the_images_of_a_table_are_trained_on(tmp_path):
    rows = f"{tmp_path / '1.png'},tank\n0.png,b\n2.png,unknown\n"
    table = table_of(tmp_path, f"path,label\n{rows}")
    before = dataset(tmp_path)
    after = data.added(before, table)
    assert after.classes == ("a", "b", "tank")
    split = after.splits["train"]
    assert split.name == "train" and split.classes == after.classes
    order = np.argsort(split.columns["label"], kind="stable")
    assert split.columns["label"][order].tolist() == [0, 1, 1, 2]
    assert split.columns["height"][order].tolist() == [4, 4, 6, 6]
    assert len({*split.columns["group"].tolist()}) == 4
    assert len({*split.columns["id"].tolist()}) == 4 and "range" not in split.columns
    assert [int(split.image(i).mean()) for i in order] == [0, 1, 10, 11]
    assert len(after.splits["test"]) == 2 and after.splits["test"].classes == after.classes
    assert before.classes == ("a", "b") and after.fingerprint != before.fingerprint
    Image.fromarray(np.full((6, 5), 99, np.uint8)).save(tmp_path / "0.png")
    assert data.added(before, table).fingerprint != after.fingerprint


def test_an_image_of_the_same_path_as_one_of_the_set_has_its_own_label(tmp_path):
    table = table_of(tmp_path, "path,label\na/0.png,b\n1.png,b\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "0.png").rename(tmp_path / "a/0.png")
    after = data.added(dataset(tmp_path), table)
    (tmp_path / "fixed.csv").write_text(f"path,label\na/0.png,b\n{tmp_path / 'a/0.png'},a\n")
    split = data.corrected(after, tmp_path / "fixed.csv").splits["train"]
    labels = {int(split.image(i).mean()): int(split.columns["label"][i]) for i in range(4)}
    assert labels == {0: 1, 1: 1, 10: 0, 11: 1}  # the set's two, and two of the table


def test_nothing_but_unknown_images_changes_nothing(tmp_path):
    before = dataset(tmp_path)
    assert data.added(before, table_of(tmp_path, "path,label\n2.png,unknown\n")) is before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("path,label\nnone.png,a\n", "none.png"),
        ("path,label\n0.png,\n", "line 2 has no label"),
        ("path\n0.png\n", "has no column 'label'"),
        ("path,label\n0.png,a\n0.png,b\n", "already in line 2"),
        ("path,label,nearest,decides,threshold\n0.png,a,a,cbc,1\n", "a table of predictions"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        data.added(dataset(tmp_path), table_of(tmp_path, content))


def test_images_that_do_not_fit_the_set_are_refused(tmp_path):
    table = table_of(tmp_path, "path,label\n0.png,a\n1.png,tank\n")
    with pytest.raises(ValueError, match="set has no split 'learning'"):
        data.added(dataset(tmp_path), table, "learning")
    tracks = dataset(tmp_path)
    own = tracks.splits["train"]
    own.columns = {**own.columns, "track": np.zeros(2, int)}
    with pytest.raises(ValueError, match="added: got set, wanted a set of single images"):
        data.added(tracks, table)
    with pytest.raises(ValueError, match="tank has no coarse class in set"):
        data.added(dataset(tmp_path, coarse=("all",)), table)
    with pytest.raises(ValueError, match="added: got .*0.png, wanted a table"):
        data.added(dataset(tmp_path), tmp_path / "0.png")
    table = table_of(tmp_path, "path,label\n0.png,a\n", np.uint16)
    with pytest.raises(ValueError, match="0.png is uint16, wanted uint8 like set"):
        data.added(dataset(tmp_path), table)
