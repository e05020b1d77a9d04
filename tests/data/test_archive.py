import io
import random
import sys
import tarfile
import zipfile
from pathlib import Path, PurePath

import numpy as np
import pytest

from jaxatr import data
from jaxatr.batch.sources.archives import Archive
from jaxatr.data import archive


def tar(path, *members):
    with tarfile.open(path, "w:gz") as file:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content) if kind == tarfile.REGTYPE else 0
            info.linkname = "" if kind == tarfile.REGTYPE else content
            file.addfile(info, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return path


def make_zip(path, members, mode=0o100644):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, content)
    return path


@pytest.mark.parametrize(
    "name, yes", [("a.tar.gz", True), ("A.ZIP", True), ("a.tgz", True), ("a.png", False)]
)
def test_archives_are_known_by_their_names(tmp_path, name, yes):
    assert archive.is_archive(tmp_path / name) is yes
    archive.check_kind(tmp_path / name)


def test_other_archives_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a\.7Z: archives of this kind"):
        archive.check_kind(tmp_path / "a.7Z")


def test_files_come_out_whole(tmp_path):
    file = tarfile.REGTYPE
    made = [
        tar(
            tmp_path / "a.tgz", ("d", tarfile.DIRTYPE, ""), ("d/e/x", file, b"1"), ("y", file, b"")
        ),
        make_zip(tmp_path / "a.zip", {"d/": b"", "d/e/x": b"1", "y": b""}),
        make_zip(tmp_path / "b.zip", {"d\\": b"", "d\\e\\": b"", "d\\e\\x": b"1", "y": b""}),
    ]
    for number, path in enumerate(made):
        out = tmp_path / str(number)
        archive.extract(path, out)
        found = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
        assert found == {"d/e/x": b"1", "y": b""}


@pytest.mark.parametrize("mode", ["", "gz"])
def test_what_comes_before_a_break_is_kept_on_request(tmp_path, mode):
    path, draw = tmp_path / f"a.tar{mode and '.'}{mode}", random.Random(0)
    contents = {name: draw.randbytes(30_000) for name in ("d/x", "y", "z")}
    with tarfile.open(path, f"w:{mode}") as file:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    path.write_bytes(path.read_bytes()[:45_000])
    found = []
    archive.extract(path, tmp_path / "out", lambda member, error: found.append((member, error)))
    assert [member and member.name for member, _ in found] == ["y", None]
    assert all(str(error).startswith(f"{path}: not a readable archive (") for _, error in found)
    (there,) = [one for one in (tmp_path / "out").rglob("*") if one.is_file()]
    assert there == tmp_path / "out/d/x" and there.read_bytes() == contents["d/x"]
    with pytest.raises(ValueError, match="not a readable archive"):
        archive.extract(path, tmp_path / "raised")


def test_a_damaged_header_is_not_the_end(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as file:
        for name in "xyz":
            file.addfile(tarfile.TarInfo(name))
    content = bytearray(path.read_bytes())
    content[512] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.tar: not a readable archive .byte 512: bad checksum"):
        archive.extract(path, tmp_path / "out")


@pytest.mark.parametrize("suffix", [".tar", ".tar.zst"])
def test_a_tar_that_breaks_off_between_two_files_is_not_complete(tmp_path, suffix):
    path, plain = tmp_path / f"a{suffix}", io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as file:
        for name in "xyz":
            file.addfile(tarfile.TarInfo(name))
    content = plain.getvalue()[:1024]
    if suffix == ".tar.zst":
        zstandard = pytest.importorskip("zstandard")
        frame = zstandard.ZstdCompressor().compressobj()  # of which the end is missing
        content = frame.compress(content) + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"a{suffix}: not a readable archive .byte 1024: the rest"):
        archive.extract(path, tmp_path / "out")


def test_a_file_that_is_no_archive_has_a_message_of_one_line(tmp_path):
    (tmp_path / "a.tar.gz").write_text("not an archive")
    with pytest.raises(ValueError, match=r"a.tar.gz: not a readable archive \([^\n]+\)\Z"):
        archive.extract(tmp_path / "a.tar.gz", tmp_path / "out")


def test_errors_about_unpacked_files_name_the_archive(tmp_path):
    folder, name = tmp_path / "scratch", tmp_path / "a.zip"
    with pytest.raises(ValueError, match=f"^{name}/x: no image$"):
        with archive.naming(folder, name):
            raise ValueError(f"{folder}/x: no image")
    with pytest.raises(KeyError, match="scratch"):
        with archive.naming(folder, name):
            raise KeyError(str(folder))


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_every_way_of_packing(tmp_path, mode):
    path = tmp_path / f"a.tar{mode and '.'}{mode}"
    with tarfile.open(path, f"w:{mode}") as file:
        info = tarfile.TarInfo("d/x")
        info.size = 3
        file.addfile(info, io.BytesIO(b"abc"))
    assert archive.is_archive(path)
    archive.extract(path, tmp_path / "out")
    assert (tmp_path / "out/d/x").read_bytes() == b"abc"
    path.write_bytes(path.read_bytes()[:50] if mode else b"x" * 600)
    with pytest.raises(ValueError, match=f"{path.name}: not a readable archive"):
        archive.extract(path, tmp_path / "damaged")


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as file:
        for name in ("d/x", "y"):
            info = tarfile.TarInfo(name)
            info.size = 3
            file.addfile(info, io.BytesIO(b"abc"))
    path = tmp_path / "a.tar.zst"
    path.write_bytes(zstandard.compress(plain.getvalue()))
    archive.extract(path, tmp_path / "out")
    assert [(tmp_path / "out" / name).read_bytes() for name in ("d/x", "y")] == [b"abc", b"abc"]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="a.tar.zst: not a readable archive"):
        archive.extract(path, tmp_path / "damaged")


def test_without_its_package_zstandard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"a.tar.zst: .*pip install 'jaxatr\[zstd\]'"):
        archive.extract(tmp_path / "a.tar.zst", tmp_path / "out")


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "C:/evil", "..\\evil"])
def test_a_path_that_leaves_is_refused(tmp_path, name):
    out = tmp_path / "in" / "out"
    for path in (
        tar(tmp_path / "a.tgz", (name, tarfile.REGTYPE, b"x")),
        make_zip(tmp_path / "a.zip", {name: b"x"}),
    ):
        with pytest.raises(ValueError, match="leaves its folder"):
            archive.extract(path, out)
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = tar(tmp_path / "a.tgz", ("l", kind, "../../outside"))
    with pytest.raises(ValueError, match="'l' in it is a link or a device"):
        archive.extract(path, tmp_path / "out")


def test_links_in_a_zip_are_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"l": b"/etc"}, mode=0o120777)
    with pytest.raises(ValueError, match="is a link"):
        archive.extract(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_a_damaged_archive_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(ValueError, match=f"{name}: not a readable archive"):
        archive.extract(tmp_path / name, tmp_path / "out")


def test_a_zip_of_an_unknown_kind_is_named(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"b.png": b"content"})
    content = bytearray(path.read_bytes())
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(signature) + place] = 9  # Deflate64
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.zip: not a readable archive .*compression"):
        archive.extract(path, tmp_path / "out")


def test_a_full_disk_is_no_damaged_archive(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = make_zip(tmp_path / "a.zip", {"b.png": b"content"})
    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        archive.extract(path, tmp_path / "out")


def test_a_member_that_is_the_folder_itself_is_refused(tmp_path):
    path = tar(tmp_path / "a.tar.gz", (".", tarfile.REGTYPE, b"x"))
    with pytest.raises(ValueError, match="leaves its folder"):
        archive.extract(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["10:00:00.png", "2024-01-01 10:00/a.png", "ab:c/a.png"])
def test_a_colon_in_a_name_is_no_drive(tmp_path, name):
    archive.extract(make_zip(tmp_path / "a.zip", {name: b"1"}), tmp_path / "out")
    assert (tmp_path / "out" / name).read_bytes() == b"1"


@pytest.mark.parametrize(
    "names, why",
    [
        (["a.png", "ä" * 140 + ".png", "z.png"], "File name too long"),
        (["a.png", "a.png/b.png", "z.png"], "File exists|Not a directory"),
        (["a.png/b.png", "a.png", "z.png"], "Is a directory"),
    ],
)
def test_a_name_that_cannot_be_stored_costs_one_file(tmp_path, names, why):
    path = make_zip(tmp_path / "a.zip", dict.fromkeys(names, b"1"))
    with pytest.raises(ValueError, match=f"a.zip: the file {names[1]!r} in it cannot .*: ({why})"):
        archive.extract(path, tmp_path / "first")
    lost = []
    archive.extract(path, tmp_path / "out", lambda member, error: lost.append(member.name))
    assert lost == [names[1]]
    assert {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.png")} >= {
        names[0],
        names[2],
    }


def test_a_name_that_is_not_utf8_is_a_damage(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"é.png": b"1"})
    path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xfe"))
    with pytest.raises(ValueError, match="a.zip: not a readable archive .'utf-8' codec"):
        archive.extract(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["Größe/1.png", "Gro\u0308ße/1.png", "船/1.png", "plain/1.png"])
def test_a_name_in_a_zip_may_be_utf8_without_the_flag(tmp_path, name):
    stand_in = "x" * len(name.encode())
    path = make_zip(tmp_path / "a.zip", {stand_in: b"1"})
    path.write_bytes(path.read_bytes().replace(stand_in.encode(), name.encode()))
    assert [member.name for member in archive.members(path)] == [name]
    key = next(iter(Archive(str(path)).keys()))
    (found,) = Archive(str(path)).read([key], tmp_path)
    assert found.name == str(path / PurePath(name))
    assert Path(found.file).read_bytes() == b"1"


def test_other_names_in_a_zip_are_of_code_page_437(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"x1.png": b"1"})
    path.write_bytes(path.read_bytes().replace(b"x1", b"\x821"))
    assert [member.name for member in archive.members(path)] == ["é1.png"]


def zeros(path, size):
    """Writes an archive of one file of zeros, after a small one."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.png", b"1")
            file.writestr("b.png", bytes(size))
    else:
        with tarfile.open(path, "w:gz") as file:
            for name, content in (("a.png", b"1"), ("b.png", bytes(size))):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, name):
    monkeypatch.setattr(archive, "ROOM", 1000)
    path, damage = zeros(tmp_path / name, 1_000_000), []
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size .*'b.png'"):
        archive.extract(path, tmp_path / "raised")
    archive.extract(path, tmp_path / "out", lambda member, error: damage.append(member))
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["a.png"] and damage == [None]
    archive.extract(zeros(tmp_path / f"small.{name}", 1000), tmp_path / "small")


def test_a_long_name_in_a_tar_is_not_read(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=tarfile.GNU_FORMAT) as file:
        file.addfile(tarfile.TarInfo("a.png"))
        file.addfile(tarfile.TarInfo("x" * 2_000_000))
    with pytest.raises(ValueError, match="not a readable archive .a header of 2000001 bytes"):
        archive.extract(tmp_path / "a.tar.gz", tmp_path / "out")


def test_arrays_that_unpack_to_many_times_their_file_are_not_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((1, 1000, 1000, 1), np.uint8))
    assert data.read_images(tmp_path / "a.npz")[0].shape == (1, 1000, 1000, 1)
    monkeypatch.setattr(archive, "ROOM", 1000)
    with pytest.raises(ValueError, match="unpacks to 1000128 bytes, 100 times its size"):
        data.read_images(tmp_path / "a.npz")
