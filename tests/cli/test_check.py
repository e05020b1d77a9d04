"""The command ``check`` and its page."""

import re
import shutil

import numpy as np
import pytest
from absl import flags
from PIL import Image

from jaxatr.cli import check

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    for split, count in (("test", 6), ("train", 8)):
        for name in ("car", "<tank>"):
            for number in range(count):
                path = tmp_path / "chips" / split / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = RNG.integers(0, 256, (20, 24), dtype=np.uint8)
                Image.fromarray(pixels).save(path)
    return tmp_path / "chips"


def spoil(folder):
    """Two unreadable files, a chip in both train and test, and one in two classes."""
    for name in ("car/0.png", "<tank>/1.png"):
        (folder / "train" / name).write_bytes(b"no image")
    for other in ("train/car/7.png", "train/<tank>/7.png"):
        (folder / other).write_bytes((folder / "test/car/3.png").read_bytes())


@pytest.fixture(autouse=True)
def own_flags(flags_of):
    """Gives each test the command's flags, whichever commands the process has defined."""
    flags_of(check)


def run_here(*arguments, **values):
    before = {name: flags.FLAGS[name].value for name in values}
    for name, value in values.items():
        setattr(flags.FLAGS, name, value)
    try:
        return check.main(arguments)
    finally:
        for name, value in before.items():
            flags.FLAGS[name].value = value


def test_a_clean_folder(command, folder):
    done = command("check", folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == ("chips: 28 images of 2 classes in the splits test, train; uint8, 1 channel")
    assert "car        6      8" in lines and "all       12     16" in lines
    assert any(line.startswith("size") for line in lines)
    steps = [line.split()[0] for line in done.stderr.splitlines()]
    assert steps == ["listing", "reading", "comparing", "measuring"]


def test_all_faults_are_reported_at_once_and_end_with_1(folder, tmp_path, capsys):
    spoil(folder)
    (folder / "train/readme.txt").write_text("")
    page = tmp_path / "out" / "page.html"
    page.parent.mkdir()
    assert run_here(str(folder), out=str(page)) == 1
    printed = capsys.readouterr().out
    for wanted in (
        "  train/car/0.png: not a readable image (cannot identify image file)",
        "  train/<tank>/1.png: not a readable image",
        "skipped: 1 of type .txt (first: train/readme.txt)",
        "!! 2 files cannot be read\n     left out by prepare --skip_corrupt, in a training by "
        "--config.data.skip_corrupt=true\n",
        "of equal images of two classes: labels contradict each other (",
        "!! 1 pair of equal images of two splits (test/car/3.png and train/car/7.png)",
        f"page: {page}",
    ):
        assert wanted in printed
    text = page.read_text()
    assert len(re.findall(r">8 of 1\d images\.<", text)) == 2  # each class shows eight pictures
    assert "<tank>" not in text and "&lt;tank&gt;" in text
    assert "Equal, of two classes" in text and "labels contradict each other" in text
    assert "train/car/0.png" in text and "not a readable image" in text
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)  # nothing from elsewhere
    positions = re.findall(r"background-position: ([\d.]+)% ([\d.]+)%", text)
    assert len(positions) >= 2 * 8 + 6


def test_the_folder_of_an_unpacked_archive_is_not_shown(folder, tmp_path, capsys):
    (folder / "train/car/0.png").write_bytes(b"no image")
    archive = shutil.make_archive(str(tmp_path / "spoilt"), "zip", tmp_path, "chips")
    assert run_here(archive) == 1
    printed = capsys.readouterr().out
    assert "  train/car/0.png: not a readable image" in printed
    assert "jaxatr-check-" not in printed
    shutil.rmtree(folder)
    (folder / "car").mkdir(parents=True)
    (folder / "car/notes.txt").write_text("")
    archive = shutil.make_archive(str(tmp_path / "words"), "zip", tmp_path, "chips")
    with pytest.raises(ValueError, match=f"no images in {archive} "):
        run_here(archive)


def test_a_folder_with_a_space_in_its_name(folder, capsys):
    spoil(folder)
    assert run_here(str(folder.rename(folder.with_name("my chips")))) == 1
    assert "\n  train/car/0.png: not a readable image" in capsys.readouterr().out


@pytest.mark.slow
def test_a_prepared_set_an_archive_and_a_crop(folder, tmp_path, capsys):
    archive = shutil.make_archive(str(tmp_path / "set"), "gztar", tmp_path, "chips")
    assert run_here(archive, center_crop=16) == 0
    assert "set.tar.gz: 28 images of 2 classes" in capsys.readouterr().out
    place = {"data_dir": str(tmp_path / "d")}
    with pytest.raises(ValueError, match="--data_dir: there is no folder .*d"):
        run_here("image_folder", data_source=str(folder), **place)
    (tmp_path / "d").mkdir()
    assert run_here("image_folder", data_source=str(folder), **place) == 0
    assert "image_folder: 28 images" in capsys.readouterr().out
    spoil(folder)
    assert run_here("image_folder", data_source=str(folder), **place) == 1
    assert "!! 2 files cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, values, match",
    [
        ((), {}, "wanted one folder, archive, table or data set, got none"),
        (("a", "b"), {}, "wanted one folder, archive, table or data set"),
        (("/nope/chips",), {}, "there is no folder, archive or table /nope/chips"),
        (("nowhere/",), {}, "there is no folder, archive or table nowhere/"),
        (("simulatd",), {}, "there is no data set 'simulatd'; did you mean 'simulated'"),
        (("mychips",), {}, "no folder, archive or table mychips, and there is no data set"),
    ],
)
def test_invalid_arguments_are_refused(arguments, values, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        run_here(*arguments, data_dir=str(tmp_path), **values)


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_read(folder, tmp_path, capsys):
    with pytest.raises(OSError, match="page.html: there is no folder"):
        run_here(str(folder), out=str(tmp_path / "none" / "page.html"))
    assert "reading" not in capsys.readouterr().err


def test_a_path_takes_no_source(folder):
    with pytest.raises(ValueError, match="--data_source is for data sets given by name"):
        run_here(str(folder), data_source=str(folder))
    with pytest.raises(ValueError, match="--data_dir is for data sets given by name"):
        run_here(str(folder), data_dir=str(folder))
    with pytest.raises(ValueError, match="no option 'layuot'; did you mean 'layout'"):
        run_here(str(folder), option=["layuot=1"])
    (folder.parent / "x.rar").write_bytes(b"Rar!")
    with pytest.raises(ValueError, match="x.rar is a file, but neither"):
        run_here(str(folder.parent / "x.rar"))
