"""The command ``prepare``."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from PIL import Image

import jaxatr
from jaxatr.cli import prepare


@pytest.fixture
def folder(tmp_path):
    for split, count in (("test", 1), ("train", 2)):
        for value, name in enumerate(("car", "tank")):
            (tmp_path / "source" / split / name).mkdir(parents=True)
            for number in range(count):
                image = Image.fromarray(np.full((4, 5 + value), value, np.uint8))
                image.save(tmp_path / "source" / split / name / f"{number}.png")
    return tmp_path / "source"


def run(*arguments):
    line = [sys.executable, "-m", "jaxatr", "prepare", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True)


@pytest.fixture(autouse=True)
def own_flags(flags_of):
    """Gives each test the command's flags, whichever commands the process has defined."""
    flags_of(prepare)


def run_here(*arguments, **values):
    """Runs the command in this process and without the check, for many small cases."""
    values = {"check": False, **values}
    before = {name: flags.FLAGS[name].value for name in values}
    for name, value in values.items():
        setattr(flags.FLAGS, name, value)
    try:
        prepare.main(arguments)
    finally:
        for name, value in before.items():
            flags.FLAGS[name].value = value


@pytest.mark.slow
def test_it_describes_its_result(folder, tmp_path):
    done = run("image_folder", f"--source={folder}", f"--data_dir={tmp_path / 'd'}", "--name=mine")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "mine: 2 classes: car, tank",
        "  test: 2 images, uint8, 4x5x1 to 4x6x1",
        "    car 1, tank 1",
        "  train: 4 images, uint8, 4x5x1 to 4x6x1",
        "    car 2, tank 2",
    ]
    assert lines[5].startswith(f"  in {tmp_path / 'd' / 'mine'}")
    assert lines[6].startswith("  fingerprint ")
    assert lines[7] == "checked 6 images:"
    assert "!! 4 pairs of equal images of two splits (test/car/0.png and" in done.stdout
    check = f"jaxatr check mine --data_dir={tmp_path / 'd'} --out=FILE.html"
    assert lines[-1] == f"for all findings with pictures: {check}"
    assert done.stderr.splitlines()[:2] == ["preparing image_folder", "reading 6 images"]


def test_without_the_check_it_is_not_made(folder, tmp_path, capsys):
    place = {"data_source": str(folder), "data_dir": str(tmp_path / "d")}
    run_here("image_folder", **place)
    printed = capsys.readouterr().out
    assert "fingerprint" in printed and "checked" not in printed


def test_skipped_images_and_hierarchy_are_listed(folder, tmp_path, capsys):
    (folder / "train" / "car" / "1.png").write_bytes(b"broken")
    (folder / "coarse.json").write_text('{"car": "wheels", "tank": "tracks"}')
    place = {"data_source": str(folder), "data_dir": str(tmp_path / "d")}
    with pytest.raises(ValueError, match="train/car/1.png: not a readable image"):
        run_here("image_folder", **place)
    run_here("image_folder", **place, skip_corrupt=True)
    printed = capsys.readouterr().out
    assert "  2 coarse classes: tracks, wheels\n" in printed
    assert "  train: 3 images" in printed and "    car 1, tank 2\n" in printed
    assert "  skipped 1:\n    train/car/1.png: " in printed


def test_the_command_that_checks_a_source_of_ones_own(tmp_path, monkeypatch, capsys):
    code = (Path(__file__).parents[1] / "docs" / "examples" / "shades.py").read_text()
    (tmp_path / "own_shades.py").write_text(code.replace('"shades"', '"own_shades"'))
    monkeypatch.syspath_prepend(tmp_path)
    jaxatr.trust("own_shades")
    run_here("own_shades:Shades", data_dir=str(tmp_path / "d"), option=["count=2"], check=True)
    check = f"jaxatr check own_shades:Shades --data_dir={tmp_path / 'd'} --option=count=2"
    assert f"{check} --out=FILE.html" in capsys.readouterr().out


def test_options_are_passed_on(tmp_path, capsys):
    options = ["aspects=1", "ranges=[1000]", 'bands=["visible"]']
    run_here("simulated", data_dir=str(tmp_path), option=options)
    assert "  train: 8 images, uint8, 64x64x1\n" in capsys.readouterr().out


def test_the_flags_of_dsiac(tmp_path, monkeypatch):
    asked = {}

    def prepared(name, **arguments):
        asked.update(arguments, name=name)
        raise KeyError("enough")

    monkeypatch.setattr(prepare.data, "prepare", prepared)
    flags_given = {"band": "thermal", "ranges": ["1000", "2000"], "time": "day", "every": 5}
    with pytest.raises(KeyError):
        run_here("dsiac", data_source=str(tmp_path), option=["size=64"], **flags_given)
    wanted = {"band": "thermal", "ranges": [1000, 2000], "time": "day", "every": 5, "size": 64}
    assert (asked["name"], asked["options"]) == ("dsiac", wanted)
    with pytest.raises(KeyError):
        run_here("dsiac", data_source=str(tmp_path))
    assert asked["options"] == {}


@pytest.mark.parametrize(
    "arguments, values, match",
    [
        ((), {}, "wanted the name of one data set, got none"),
        (("a", "b"), {}, "wanted the name of one data set, got a, b"),
        (("/",), {}, "'/' is a path, not a data set: image_folder takes it"),
        (("simulated",), {"option": ["aspects"]}, "--option: got 'aspects', wanted NAME=VALUE"),
        (("simulated",), {"option": ["aspects=many"]}, "aspects: got 'many', wanted a value like"),
        (("simulated",), {"option": ["ranges=[1000"]}, "'.1000' is not JSON"),
        (("simulated",), {"band": "thermal"}, "--band is a flag of dsiac, but not of simulated"),
        (("image_folder",), {"every": 2}, "--every is a flag of dsiac"),
        (("dsiac",), {"ranges": ["1000", "far"]}, "--ranges: got 'far', wanted metres"),
        (("dsiac",), {"time": "day", "option": ["time=1"]}, "--time and --option=time=… are the"),
    ],
)
def test_invalid_arguments_are_refused(arguments, values, match):
    with pytest.raises(ValueError, match=match):
        run_here(*arguments, **values)


def test_images_of_no_class_are_counted(tmp_path, capsys):
    options = ["decoys=3", "aspects=1", "ranges=[1000]", "size=16", 'bands=["visible"]']
    run_here("simulated", data_dir=str(tmp_path), option=options)
    said = capsys.readouterr().out
    assert "  decoys: 3 images" in said and "    no class 3" in said


def test_an_option_of_another_type_is_named(tmp_path):
    with pytest.raises(ValueError, match="ranges: got 1000, wanted a value like"):
        run_here("simulated", data_dir=str(tmp_path), option=["ranges=1000"])
    with pytest.raises(ValueError, match="size: got '64', wanted a value like 64"):
        run_here("simulated", data_dir=str(tmp_path), option=['size="64"'])
