"""Inputs of every kind are listed in order and read in parts, without unpacking."""

import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from jaxatr import data
from jaxatr.batch.sources import sources_of
from jaxatr.data import archive


@pytest.fixture
def read(tmp_path):
    """Reads the images of some keys of a source, as another process would."""

    def read(source, keys, number=0):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir(exist_ok=True)
        return list(pickle.loads(pickle.dumps(source)).read(keys, scratch))

    return read


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz", "paths", "csv", "tsv"])
def test_any_keys_lead_to_their_images(every_kind, test_chips, read, kind):
    (source,) = sources_of([every_kind[kind]])
    keys = list(source.keys())
    names = sorted(str(path.relative_to(test_chips)) for path in test_chips.rglob("*.png"))
    assert len(keys) == 40 and list(source.keys()) == keys
    for chosen in (range(40), range(7, 21), (3, 4, 39)):
        found = read(source, [keys[n] for n in chosen])
        for number, one in zip(chosen, found, strict=True):
            assert one.name.endswith(names[number]) and one.error is None
            wanted = data.read_image(test_chips / names[number])
            np.testing.assert_array_equal(data.read_image(one.file), wanted)
    if kind in ("tar", "tar.gz"):
        assert source.passed == {".txt": 1}


def test_a_folder_of_tables_is_a_set_of_rows(every_kind, test_chips, read):
    sources = sources_of([every_kind["parquet"]])
    names = sorted(str(path.relative_to(test_chips)) for path in test_chips.rglob("*.png"))
    assert [list(source.keys()) for source in sources] == [list(range(20))] * 2
    found = read(sources[1], [6, 7, 19])
    for number, one in zip((26, 27, 39), found, strict=True):
        assert one.name.endswith(f"set/1.parquet/{number - 20}")
        wanted = data.read_image(test_chips / names[number])
        np.testing.assert_array_equal(data.read_image(one.file), wanted)


def test_a_chip_in_two_files_is_one_input(every_kind, tmp_path):
    pairs, alone = ("a_vis.png", "a_ir.png", "b_ir.png", "b_vis.png"), ("c.png", "d_ir.png")
    for name in pairs + alone:
        (tmp_path / name).touch()
    bands = data.Bands(files=("_vis.png", "_ir.png"))
    (source,) = sources_of([str(tmp_path)], bands=bands)
    assert list(source.keys()) == ["a_vis.png", "b_vis.png", "c.png", "d_ir.png"]
    assert len(list(sources_of([str(tmp_path)])[0].keys())) == 6
    with pytest.raises(ValueError, match="in several files .*: unpack the archive"):
        sources_of([every_kind["zip"]], bands=bands)


def test_a_prepared_data_set_is_read_by_number(chips, read, tmp_path):
    given = {"data_dir": str(tmp_path / "prepared")}
    made = data.prepare("image_folder", source=chips, as_name="shapes", **given)
    every = sources_of(["tfds:shapes"], **given)
    assert [source.name for source in every] == ["tfds:shapes:test", "tfds:shapes:train"]
    (source,) = sources_of(["tfds:shapes:test"], **given)
    assert list(source.keys()) == list(range(40)) and source.state() == made.fingerprint
    (found,) = read(source, [11])
    assert found.name == "tfds:shapes:test/11"
    np.testing.assert_array_equal(data.read_image(found.file), made.splits["test"].image(11))
    with pytest.raises(ValueError, match="got split 'none', wanted one of test, train"):
        sources_of(["tfds:shapes:none"], **given)


def test_a_packed_archive_is_read_once_from_its_beginning(every_kind, monkeypatch, tmp_path):
    (source,) = sources_of([every_kind["tar.gz"]])
    keys, opened = list(source.keys()), []
    whole = archive.members
    monkeypatch.setattr(archive, "members", lambda path: opened.append(path) or whole(path))
    for chosen in (keys[:9], keys[20:22], keys[30:]):
        assert len(list(source.read(chosen, tmp_path))) == len(chosen)
    assert len(opened) == 1
    assert len(list(source.read(keys[:2], tmp_path))) == 2 and len(opened) == 2


@pytest.mark.parametrize("scenes", [False, True])
def test_members_that_are_read_with_another_are_named(tmp_path, scenes):
    """World files matter to scenes only."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for name in ("a.png", "a.pgw", "b.tif", "b.tifw", "c.hdr", "c.img", "d.bow"):
            packed.writestr(name, "")
    (source,) = sources_of([str(tmp_path / "a.zip")], scenes=scenes)
    named = ["a.pgw", "b.tifw", "c.hdr"] if scenes else ["c.hdr"]
    listed = list(source.listed())
    apart = [one for one in listed if isinstance(one, dict)]
    assert [one["name"] for one in apart] == [str(tmp_path / "a.zip" / name) for name in named]
    assert all(one["error"].endswith("from a folder: unpack the archive") for one in apart)
    assert [one[0] for one in listed if one not in apart] == ["a.png", "b.tif"]


def test_a_member_that_is_damaged_is_an_error_of_its_own(every_kind, read, tmp_path):
    content = bytearray(open(every_kind["zip"], "rb").read())
    with zipfile.ZipFile(every_kind["zip"]) as packed:
        info = packed.infolist()[1]
    content[info.header_offset + 30 + len(info.filename) + 20] ^= 255
    (tmp_path / "damaged.zip").write_bytes(content)
    (source,) = sources_of([str(tmp_path / "damaged.zip")])
    first, second, _ = read(source, list(source.keys())[:3])
    assert first.error is None and "Bad CRC-32" in str(second.error)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_member_that_has_gone_is_an_error_of_its_own(every_kind, read, tmp_path, kind):
    (whole,) = sources_of([every_kind[kind]])
    keys, path = list(whole.keys()), tmp_path / f"other.{kind}"
    with zipfile.ZipFile(path, "w") if kind == "zip" else tarfile.open(path, "w:gz"):
        pass
    (source,) = sources_of([str(path)])
    found = read(source, keys[:2])
    assert all(str(one.error).endswith("is no longer in the archive") for one in found)


def test_sources_without_images_are_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    with pytest.raises(ValueError, match="none: there is no such file or folder"):
        sources_of([str(tmp_path / "none")])
    (tmp_path / "chips.7z").write_bytes(b"")
    with pytest.raises(ValueError, match=r"archives of this kind cannot be read, wanted .*\.zip"):
        sources_of([str(tmp_path / "chips.7z")])
    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"no table")
    for name, message in (("a", r"no column of images among a"), ("b", "not a readable")):
        (source,) = sources_of([str(tmp_path / f"{name}.parquet")])
        with pytest.raises(ValueError, match=message):
            list(source.keys())
    for text, message in (
        ("label\ntank\n", "has no column 'path'"),
        ("path\n", "the table has no rows"),
        ("", "the table has no rows"),
    ):
        (tmp_path / "c.csv").write_text(text)
        (source,) = sources_of([str(tmp_path / "c.csv")])
        with pytest.raises(ValueError, match=f"c.csv.* {message}"):
            list(source.keys())


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_the_second_file_of_a_name_is_an_error_and_the_first_is_read(tmp_path, read, kind):
    path, contents = tmp_path / f"twice.{kind}", (b"first", b"second")
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("x.png", contents[0])
            with pytest.warns(UserWarning, match="Duplicate name"):
                packed.writestr("x.png", contents[1])
    else:
        with tarfile.open(path, "w") as packed:
            for content in contents:
                info = tarfile.TarInfo("x.png")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
    (source,) = sources_of([str(path)])
    keys = list(source.listed())
    assert keys[1] == {"name": f"{path}/x.png", "error": "the archive has 'x.png' twice"}
    first, second = source.found(keys, tmp_path)
    with open(first.file, "rb") as file:
        assert file.read() == b"first"
    assert (first.name, second.name) == (f"{path}/x.png",) * 2
    assert str(second.error) == "the archive has 'x.png' twice"


def test_a_table_that_unpacks_to_many_times_its_size_is_not_read(read, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = pyarrow.table({"image": [bytes(1_000_000)]})
    parquet.write_table(images, tmp_path / "a.parquet", compression="zstd")
    (source,) = sources_of([str(tmp_path / "a.parquet")])
    assert read(source, [0], 1)[0].error is None
    monkeypatch.setattr("jaxatr.data.parquet.ROOM", 1000)
    (found,) = read(source, [0], 2)
    assert "row group 0 unpacks to" in str(found.error)
