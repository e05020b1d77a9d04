"""The images at a path: tables of paths, and paths that name nothing."""

import zipfile

import numpy as np
import pytest

from jaxatr import data
from jaxatr.batch.sources import sources_of
from jaxatr.cli.images import Inputs


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_paths_of_a_table(tmp_path, suffix):
    (tmp_path / "set").mkdir()
    rows = [{"file": "b/x.png"}, {"file": str(tmp_path / "a.png")}]
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    data.write_table(tmp_path / "set" / f"chips.{suffix}", rows)
    found = data.image_paths(str(tmp_path / "set" / f"chips.{suffix}"), tmp_path / "scratch")
    assert [image.file for image in found.images] == [
        str(tmp_path / "set/b/x.png"),
        str(tmp_path / "a.png"),
    ]
    assert [image.below for image in found.images] == ["b/x.png", "a.png"]


def test_tables_that_list_no_paths_are_named(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    parquet.write_table(pyarrow.table({"image": [{"bytes": b"x"}]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="got dict, wanted the path of an image; only jaxatr pre"):
        data.image_paths(str(tmp_path / "a.parquet"), tmp_path)
    (tmp_path / "b.csv").write_text("label\ntank\n")
    with pytest.raises(ValueError, match="has no column 'path'"):
        data.image_paths(str(tmp_path / "b.csv"), tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_row_without_a_path_costs_itself_only(tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"chips.{suffix}"
    data.write_table(path, [{"path": "a.png"}, {"path": None}, {"path": "b\\c.png"}])
    first, second, third = data.image_paths(str(path), tmp_path).images
    assert (first.name, third.name) == (f"{tmp_path}/a.png", f"{tmp_path}/b/c.png")
    assert second.name == f"{path}/1" and first.error is third.error is None
    assert str(second.error) == ("line 3" if suffix == "csv" else "row 2") + " has no path"


def test_a_damaged_file_of_an_archive_is_an_error_at_its_place(tmp_path):
    path = tmp_path / "chips.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("b.png", "a/x.png", ".hidden/y.png", "a.txt", "c.png"):
            packed.writestr(name, f"<{name}>" * 9)
    content = path.read_bytes()
    for name in ("a/x.png", ".hidden/y.png", "a.txt"):
        content = content.replace(f"<{name}>".encode(), b"?" * (len(name) + 2))
    path.write_bytes(content)
    found = data.image_paths(str(path), tmp_path / "scratch")
    assert [image.name for image in found.images] == [
        f"{path}/{name}" for name in ("a/x.png", "b.png", "c.png")
    ]
    assert [image.error is None for image in found.images] == [False, True, True]
    assert "Bad CRC-32 for file 'a/x.png'" in str(found.images[0].error)
    assert found.passed == {".txt": 1}


def test_an_empty_path_is_not_the_current_folder(tmp_path):
    with pytest.raises(ValueError, match="got an empty path"):
        data.image_paths("", tmp_path)


def test_links_in_a_folder_are_followed_and_those_to_nothing_counted(tmp_path, save):
    image = save(tmp_path / "set/a/x.png", np.zeros((2, 2), np.uint8))
    save(tmp_path / "pool/y.png", np.zeros((2, 2), np.uint8))
    for name, target in (
        ("a/same.png", image),
        ("b", tmp_path / "pool"),
        ("c", tmp_path / "pool"),
        ("d", image.parent),
        ("a/round", tmp_path / "set"),
        ("a/gone.png", tmp_path / "gone.png"),
        ("a/itself.png", "itself.png"),
    ):
        (tmp_path / "set" / name).symlink_to(target)
    found = data.image_paths(str(tmp_path / "set"), tmp_path / "scratch")
    assert [image.below for image in found.images] == ["a/same.png", "a/x.png", "b/y.png"]
    assert data.describe_passed(found.passed) == (
        "skipped: 3 folders that are read at another path, 2 links to nothing"
    )
    (source,) = sources_of([str(tmp_path / "set")])
    assert list(source.keys()) == ["a/same.png", "a/x.png", "b/y.png"]
    assert source.passed == found.passed


def test_a_folder_of_links_to_nothing_says_so(tmp_path):
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing")
    with pytest.raises(ValueError, match="there is no image in it .1 links to nothing."):
        data.image_paths(str(tmp_path), tmp_path / "scratch")


@pytest.mark.parametrize("name", ["image", "in", "there", "i"])
def test_an_error_names_its_input_even_if_the_name_is_a_part_of_the_message(
    tmp_path, monkeypatch, capsys, name
):
    (tmp_path / name).mkdir()
    (tmp_path / "file").symlink_to(tmp_path / "nothing")
    monkeypatch.chdir(tmp_path)
    found = Inputs([name, "file"], "scratch", read=_refuse, prepare=_refuse)
    assert list(found) == []
    lines = [f"error: {name}: there is no image in it", "error: file: No such file or directory"]
    assert capsys.readouterr().err.splitlines() == lines
    (source,) = sources_of([name])
    assert list(source.listed()) == [{"name": name, "error": "there is no image in it"}]
    assert source.unread == [f"{name}: there is no image in it"]


def _refuse(path):
    raise FileNotFoundError(2, "No such file or directory", path)


def test_the_line_of_an_error_has_the_name_once():
    error = ValueError("/tmp/x/a.csv has no column 'path'")
    assert data.line_of(error, "a.csv", "/tmp/x/a.csv") == "a.csv has no column 'path'"
    assert data.line_of(OSError("a.csv: damaged"), "a.csv") == "a.csv: damaged"
    assert data.line_of(ValueError("got chips"), "chip") == "chip: got chips"
