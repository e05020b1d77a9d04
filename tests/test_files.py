"""Files are written atomically, and errors name invalid paths as given."""

import errno
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from jaxatr import bundled, data, files, reporting, training
from jaxatr.data import annotations, combined_splits, others
from jaxatr.models import weight_file


def test_a_path_that_cannot_be_a_file_is_named(tmp_path):
    with pytest.raises(OSError) as missing:
        files.write_text(tmp_path / "none" / "x.html", "text")
    assert (
        str(missing.value) == f"{tmp_path / 'none' / 'x.html'}: there is no folder {tmp_path}/none"
    )
    with pytest.raises(OSError) as folder:
        files.write_text(tmp_path, "text")
    assert str(folder.value) == f"{tmp_path} is a folder, wanted a file's name"
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_not_utf_8_is_escaped_and_read_back_from_json(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    files.write_text(tmp_path / "a.json", json.dumps([name], ensure_ascii=False))
    assert (tmp_path / "a.json").read_text("utf-8") == '["caf\\udce9.png"]'
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == [name]


def test_pages_are_not_written_under_the_name_of_another_kind_of_file(tmp_path):
    for write in (files.check_page, lambda out: reporting.write_report(["nowhere"], out)):
        for name in ("r.pdf", "record.json", "chip.png", "html"):
            with pytest.raises(ValueError, match=f"{name}, wanted an HTML file"):
                write(tmp_path / name)
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            write(tmp_path / "missing" / "r.html")
    files.check_page(tmp_path / "r.HTM")


def test_json_that_is_nested_too_deeply_or_a_pipe_is_named(tmp_path):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="a.json is damaged"):
        files.read_json(tmp_path / "a.json")
    os.mkfifo(tmp_path / "b.json")
    with pytest.raises(OSError, match="a device or a pipe"):
        files.read_json(tmp_path / "b.json")


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    files.write_text(tmp_path / "x", "before")
    with pytest.raises(RuntimeError), files.replacing(tmp_path / "x") as file:
        file.write(b"half")
        raise RuntimeError
    assert (tmp_path / "x").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_a_long_name_is_written_and_one_that_is_too_long_is_named(tmp_path):
    name = "ä" * 120 + ".csv"  # 244 bytes of 255
    files.write_text(tmp_path / name, "text")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(OSError) as long:
        files.write_text(tmp_path / ("x" * 300), "text")
    with pytest.raises(OSError) as proc:
        files.write_text("/proc/x.csv", "text")
    assert long.value.filename in (None, str(tmp_path / ("x" * 300)))
    assert proc.value.filename == "/proc/x.csv"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_lock_is_waited_for_until_its_time_is_over(tmp_path):
    asked = []
    with files.locked(tmp_path / "lock"):
        with pytest.raises(TimeoutError, match="lock is held by another process"):
            with files.locked(tmp_path / "lock", seconds=0.0):
                pass
        with pytest.raises(TimeoutError, match="lock is held by another process"):
            with files.locked(tmp_path / "lock", given_up=lambda: asked.append(1) or True):
                pass
    assert asked == [1]
    with files.locked(tmp_path / "lock", seconds=0.0):
        pass


def in_folder(read):
    return lambda path: read(path.parent, path)


@pytest.mark.parametrize(
    "read",
    [
        training.load_config,
        data.read_image,
        combined_splits.read_images,
        others.check_others,
        weight_file.read_content,
        in_folder(annotations.read_annotations),
        lambda path: bundled.load(f"{path}.py"),
    ],
)
def test_what_is_missing_is_a_missing_file_and_a_users_value(read, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere") as missing:
        read(tmp_path / "nowhere")
    assert isinstance(missing.value, ValueError)


@pytest.mark.parametrize("written, asked", [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_file_is_found_by_a_name_in_the_other_form_of_unicode(tmp_path, written, asked):
    """As on macOS, whose archives and tables are read on Linux."""
    there = tmp_path / unicodedata.normalize(written, "Škoda é") / "Ünimog.bin"
    there.parent.mkdir()
    there.write_bytes(b"x")
    other = tmp_path / unicodedata.normalize(asked, "Škoda é") / "Ünimog.bin"
    assert files.read_regular(other) == b"x"
    assert files.in_other_form(other).samefile(there)
    assert files.in_other_form(tmp_path / "Škoda" / "Ünimog.bin") is None
    with pytest.raises(FileNotFoundError):
        files.read_regular(there.with_name("Über.bin"))


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; from jaxatr import files\n"
        "made = files.Scratch(sys.argv[1])\n"
        "Path(made.name, 'chip.png').touch()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (chip,) = tmp_path.glob("*/chip.png")
    lock = Path(f"{chip.parent}.lock")
    with files.Scratch(str(tmp_path)) as mine:  # the lock is as young as one about to be held
        assert chip.exists()
        os.utime(lock, (0, 0))
        os.utime(f"{mine}.lock", (0, 0))
        with files.Scratch(str(tmp_path)) as other:
            assert not chip.parent.exists() and not lock.exists()
            assert Path(mine).exists() and Path(other).exists()
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_removes_its_folders(tmp_path):
    made = files.Scratch(str(tmp_path))
    Path(made.name, "chip.png").touch()
    files.Scratch.remove_all()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_with_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("whole")
    for number, named in ((errno.ENOSPC, str(path)), (errno.EFBIG, str(path)), (errno.EPIPE, None)):
        with pytest.raises(OSError) as caught, files.replacing(path):
            raise OSError(number, os.strerror(number))
        assert caught.value.filename == named
    assert path.read_text() == "whole" and [*tmp_path.iterdir()] == [path]
