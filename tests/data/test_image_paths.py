"""The images at a path: tables of paths, and paths that name nothing."""

import pytest

from jaxatr import data


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
    with pytest.raises(ValueError, match="has no column 'path' .it has label.; looked for path$"):
        data.image_paths(str(tmp_path / "b.csv"), tmp_path)


def test_an_empty_path_is_not_the_current_folder(tmp_path):
    with pytest.raises(ValueError, match="got an empty path"):
        data.image_paths("", tmp_path)
