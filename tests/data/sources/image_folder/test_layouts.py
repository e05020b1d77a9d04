"""Layouts of folders that are inferred, assumed with a warning, or refused as unclear."""

import shutil

import numpy as np
import pytest

from jaxatr.data import open_dataset
from jaxatr.data.sources.image_folder import image_folder
from jaxatr.data.sources.image_folder.folder import find
from jaxatr.data.sources.image_folder.layouts import LAYOUTS


@pytest.fixture
def make(tmp_path, save):
    """Returns a function that writes two images into each of some folders of a new folder."""

    def made(*folders, name="set"):
        for number, folder in enumerate(folders):
            for file in ("0.png", "1.png"):
                save(tmp_path / name / folder / file, np.full((2, 2), number, np.uint8))
        return tmp_path / name

    return made


def read(root, layout=""):
    """Returns split, coarse class and class of each image by its folders, and the assumption."""
    found = find(root, layout=layout)
    given = {
        one.path.rpartition("/")[0]: (one.split, one.coarse, one.label) for one in found.listed
    }
    return given, found.assumed


def test_splits_below_the_classes(make):
    root = make("car/Train", "car/Test", "van/Train")
    given, assumed = read(root)
    assert given == {
        "car/Train": ("train", None, "car"),
        "car/Test": ("test", None, "car"),
        "van/Train": ("train", None, "van"),
    }
    assert assumed == "<class>/<split>/*"
    assert read(root, "class/split") == (given, "")


def test_splits_below_the_classes_and_coarse_classes(make):
    given, assumed = read(make("wheeled/car/train", "wheeled/car/val", "tracked/tank/train"))
    assert given["wheeled/car/val"] == ("val", "wheeled", "car")
    assert given["tracked/tank/train"] == ("train", "tracked", "tank")
    assert assumed == "<coarse>/<class>/<split>/*"


def test_splits_of_any_name_below_the_classes_need_the_layout(make):
    root = make("car/day", "car/night", "van/day", "van/night")
    assert read(root)[0]["car/day"] == ("car", None, "day")
    assert read(root, "class/split")[0]["car/day"] == ("day", None, "car")


def test_chips_of_one_class_in_splits(make):
    """A folder of chips to calibrate to; its only class is no wrapper of classes train and test."""
    assert read(make("car/train", "car/test"))[0]["car/test"] == ("test", None, "car")


@pytest.mark.parametrize(
    ("folders", "first", "assumed"),
    [
        (["data/car", "data/van"], (None, None, "car"), "data/<class>/*"),
        (["data/data/car", "data/data/van"], (None, None, "car"), "data/data/<class>/*"),
        (["x/test/car", "x/train/van"], ("test", None, "car"), "x/<split>/<class>/*"),
        (["x/a/car", "x/b/van"], (None, "a", "car"), "x/<coarse>/<class>/*"),
        (["x/car/test", "x/van/test"], ("test", None, "car"), "x/<class>/<split>/*"),
        (["x/test/a/car", "x/test/b/van"], ("test", "a", "car"), "x/<split>/<coarse>/<class>/*"),
        (["test/car", "test/van"], ("test", None, "car"), ""),
    ],
)
def test_folders_that_hold_all_the_others(make, folders, first, assumed):
    given, found = read(make(*folders))
    assert next(iter(given.values())) == first and found == assumed


def test_a_layout_says_how_many_folders_are_around_it(make):
    root = make("wheeled/car", "wheeled/van")
    assert read(root)[0]["car"] == (None, None, "car")
    assert read(root, "coarse/class") == (
        {"wheeled/car": (None, "wheeled", "car"), "wheeled/van": (None, "wheeled", "van")},
        "",
    )
    assert read(root, "split/class")[0]["wheeled/car"] == ("wheeled", None, "car")
    assert read(root, "class") == read(root)


def test_coarse_classes_and_other_files_in_a_wrapper(make):
    root = make("data/car", "data/van")
    (root / "data/coarse.json").write_text('{"car": "x", "van": "y"}')
    (root / "data/readme.txt").write_text("")
    (root / "readme.txt").write_text("")
    with pytest.warns(UserWarning, match="set: taken for data/<class>/[*]; the option layout sets"):
        found = image_folder(root, {"layout": "", "table": "", "test_fraction": 0.5})
    assert found.coarse_classes == ("x", "y")
    assert [*found.passed] == [(".txt", ("data/readme.txt", "readme.txt"))]


@pytest.mark.parametrize(
    ("folders", "choices"),
    [
        (["car/train", "car/test", "car/more", "van/train"], "split/class, coarse/class, class/sp"),
        (["train/train", "train/test", "test/train"], "split/class, coarse/class, class/split, "),
        (["a/car/train", "a/car/test", "b/van/more"], "split/coarse/class, coarse/class/split, "),
        (["car/train/x", "car/test/y", "van/train/z"], "split/coarse/class, coarse/class/split, "),
        (["train/car/val", "test/car/val"], "split/coarse/class, coarse/class/split, "),
        (["train", "test"], "class, such as --option=layout='\"class\"', "),
    ],
)
def test_unclear_layouts_are_refused_with_the_choices(make, folders, choices):
    root = make(*folders)
    with pytest.raises(ValueError, match=f"layout: not clear from .*set.* wanted one of {choices}"):
        find(root)


def test_a_class_that_is_called_like_a_split(make):
    assert read(make("vehicles/train", "vehicles/car", "animals/dog")) == (
        {
            "vehicles/train": (None, "vehicles", "train"),
            "vehicles/car": (None, "vehicles", "car"),
            "animals/dog": (None, "animals", "dog"),
        },
        "",
    )
    assert read(make("train", "car", name="one"))[0]["train"] == (None, None, "train")
    unclear = make("train", "test", name="both")
    assert {name: one[2] for name, one in read(unclear, "class")[0].items()} == {
        "train": "train",
        "test": "test",
    }


def test_an_archive_is_read_like_its_folder_and_named(make, tmp_path, data_dir):
    root = make("chips/car/train", "chips/car/test", "chips/van/train", "chips/van/test")
    (root / "notes.txt").write_text("")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", root)
    with pytest.warns(UserWarning, match="packed.zip: taken for chips/<class>/<split>/[*]; "):
        packed = open_dataset("image_folder", source=archive, data_dir=data_dir)
    with pytest.warns(UserWarning, match="set: taken for chips/<class>/<split>/[*]; "):
        loose = open_dataset("image_folder", source=root, data_dir=data_dir)
    assert packed.fingerprint == loose.fingerprint and packed.classes == ("car", "van")
    assert sorted(packed.splits) == ["test", "train"]
    unclear = shutil.make_archive(str(tmp_path / "flat"), "zip", make("train", "test", name="flat"))
    with pytest.raises(ValueError, match=f"layout: not clear from the folders of {unclear}, "):
        open_dataset("image_folder", source=unclear, data_dir=data_dir)


def test_a_table_in_a_wrapper(make):
    root = make("data/x")
    (root / "data/list.csv").write_text("path,label\nx/0.png,car\nx/1.png,van\n")
    for name in ("list.csv", "data/list.csv"):
        assert {one.label for one in find(root, table_name=name).listed} == {"car", "van"}
    with pytest.raises(ValueError, match="table: there is no file 'lst.csv' in .*set$"):
        find(root, table_name="lst.csv")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_its_own_folders(make, layout):
    parts = {"split": ("day", "night"), "coarse": ("big", "small"), "class": ("car", "van")}
    levels = LAYOUTS[layout]
    root = make(*("/".join(parts[level][turn] for level in levels) for turn in (0, 1)))
    given, assumed = read(root, layout)
    assert assumed == ""
    for turn, (split, coarse, label) in enumerate(given.values()):
        assert label == parts["class"][turn]
        assert split == (parts["split"][turn] if "split" in levels else None)
        assert coarse == (parts["coarse"][turn] if "coarse" in levels else None)


def test_the_one_folder_of_an_archive_is_not_worth_a_line(make):
    root = make("chips/train/car", "chips/train/tank")
    assert find(root).assumed == "chips/<split>/<class>/*"
    found = find(root, inside=True)
    assert found.assumed == "" and found.root == root / "chips"
