import json

import numpy as np
import pytest
from PIL import Image

from jaxatr.data import ImageError, open_dataset
from jaxatr.data.source import Request
from jaxatr.data.sources.image_folder import SOURCE
from jaxatr.data.sources.image_folder.folder import scan


def opened(source, data_dir, **arguments):
    return open_dataset("image_folder", source=source, data_dir=data_dir, **arguments)


def test_every_image_comes_back_with_its_class(folder, data_dir):
    dataset = opened(folder, data_dir)
    assert dataset.classes == ("car", "tank", "van")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"test": 6, "train": 12}
    assert (dataset.coarse_classes, dataset.fine_to_coarse, dataset.skipped) == (None, None, ())
    seen = []
    for split in dataset.splits.values():
        assert split.dtype == np.uint8
        for number in range(len(split)):
            example = split[number]
            path = example["path"].split("/")
            assert path[0] == split.name and path[1] == dataset.classes[example["label"]]
            assert example["image"].shape == (6, 8, 1)
            assert example["image"].min() == example["image"].max() == example["id"]
            seen.append(int(example["id"]))
            for name in ("label", "id", "path"):
                assert split.columns[name][number] == example[name]
        assert set(split.columns) == {"label", "id", "path", "height", "width", "channels"}
    assert seen == list(range(18))


def test_split_is_indexed_like_a_list(folder, data_dir):
    split = opened(folder, data_dir).splits["train"]
    assert split[-1]["id"] == split[len(split) - 1]["id"] == 17
    with pytest.raises(IndexError, match="example 12 of the 12 in split 'train'"):
        split[12]


def test_sizes_and_channels_may_differ(tmp_path, data_dir, save):
    gray = np.arange(12, dtype=np.uint8).reshape(3, 4)
    colour = np.arange(30, dtype=np.uint8).reshape(2, 5, 3)
    save(tmp_path / "s/train/a/x.PNG", gray)
    save(tmp_path / "s/train/b/x.TIFF", colour)
    (tmp_path / "s/train/b/notes.txt").write_text("no image")
    (tmp_path / "s/train/b/.hidden.png").write_text("no image")
    split = opened(tmp_path / "s", data_dir).splits["train"]
    np.testing.assert_array_equal(split[0]["image"][:, :, 0], gray)
    np.testing.assert_array_equal(split[1]["image"], colour)
    sizes = [split.columns[name].tolist() for name in ("height", "width", "channels")]
    assert sizes == [[3, 2], [4, 5], [1, 3]]


@pytest.mark.parametrize("dtype, suffix", [(np.uint16, "png"), (np.float32, "tif")])
def test_range_is_kept(tmp_path, data_dir, save, dtype, suffix):
    array = np.array([[0, 1, 65535]], dtype)
    for name in "ab":
        save(tmp_path / f"s/train/{name}/x.{suffix}", array)
    split = opened(tmp_path / "s", data_dir).splits["train"]
    assert split.dtype == dtype and split[0]["image"].dtype == dtype
    np.testing.assert_array_equal(split[0]["image"][:, :, 0], array)


def test_dtypes_may_not_be_mixed(tmp_path, data_dir, save):
    save(tmp_path / "s/train/a/x.png", np.zeros((2, 2), np.uint8))
    save(tmp_path / "s/train/b/y.png", np.zeros((2, 2), np.uint16))
    with pytest.raises(ValueError, match="b/y.png is uint16 and others are uint8"):
        opened(tmp_path / "s", data_dir)


def test_without_split_folders_a_fifth_of_each_class_is_the_test_set(tmp_path, save):
    for name, count in (("a", 10), ("b", 2), ("c", 1)):
        for number in range(count):
            save(tmp_path / name / f"{number}.png", np.zeros((2, 2), np.uint8))
    first = scan(tmp_path)
    counts = {
        split: np.bincount([label for _, label in files], minlength=3).tolist()
        for split, files in first.files.items()
    }
    assert counts == {"train": [8, 1, 1], "test": [2, 1, 0]}
    assert scan(tmp_path) == first
    half = scan(tmp_path, test_fraction=0.5).files
    assert {split: len(files) for split, files in half.items()} == {"train": 7, "test": 6}
    with pytest.raises(ValueError, match="test_fraction"):
        scan(tmp_path, test_fraction=1.0)


def test_hierarchy(folder, data_dir):
    coarse = {"car": "wheeled", "van": "wheeled", "tank": "tracked"}
    (folder / "coarse.json").write_text(json.dumps(coarse))
    dataset = opened(folder, data_dir)
    assert dataset.coarse_classes == ("tracked", "wheeled")
    assert dataset.fine_to_coarse == (1, 0, 1)
    split = dataset.splits["train"]
    assert split.columns["coarse"].tolist() == [1] * 4 + [0] * 4 + [1] * 4
    assert split[5]["coarse"] == 0


@pytest.mark.parametrize(
    "text, match",
    [
        ("{", "coarse.json: not readable as JSON"),
        ("[1]", 'coarse.json: expected {"fine'),
        ('{"car": "x", "tank": "y"}', "no coarse class for van"),
        ('{"car": "x", "tank": "y", "van": "x", "vam": "z"}', "'vam'; did you mean 'van'"),
    ],
)
def test_a_hierarchy_that_does_not_fit_is_refused(folder, text, match):
    (folder / "coarse.json").write_text(text)
    with pytest.raises(ValueError, match=match):
        scan(folder)


def test_missing_empty_and_single_are_told_apart(tmp_path, save):
    looked = "looked for <split>/<class>/"
    with pytest.raises(ValueError, match=f"no folder .*gone; {looked}"):
        scan(tmp_path / "gone")
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"no images in .*; {looked}"):
        scan(tmp_path)
    save(tmp_path / "train/a/x.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match=f"has one class, 'a'; {looked}"):
        scan(tmp_path)


@pytest.mark.parametrize("odd", ["x.png", "train/x.png", "train/a/deep/x.png", "train/a/b/c/x.png"])
def test_an_image_out_of_place_is_named(folder, save, odd):
    save(folder / odd, np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match=f"{odd} is out of place|no images"):
        scan(folder)


def test_a_split_needs_a_plain_name(folder):
    (folder / "train").rename(folder / "my train")
    with pytest.raises(ValueError, match="my train: a split's name"):
        scan(folder)


def test_links_may_not_lead_out(folder, tmp_path, save):
    outside = save(tmp_path / "outside/x.png", np.zeros((2, 2), np.uint8))
    inside = folder / "train/car/0.png"
    (folder / "train/car/same.png").symlink_to(inside)
    assert "train/car/same.png" in dict(scan(folder).files["train"])
    (folder / "train/car/link.png").symlink_to(outside)
    with pytest.raises(ValueError, match="link.png is a link that leads out"):
        scan(folder)
    (folder / "train/car/link.png").unlink()
    (folder / "train/bus").symlink_to(outside.parent)
    with pytest.raises(ValueError, match="bus is a link that leads out"):
        scan(folder)


def test_links_in_a_circle_end(folder):
    (folder / "train" / "car" / "round").symlink_to(folder)
    with pytest.raises(ValueError, match="out of place"):
        scan(folder)


def corrupt(path):
    path.write_bytes(path.read_bytes()[:40])


def test_a_corrupt_image_is_named(folder, data_dir):
    corrupt(folder / "train/tank/1.png")
    with pytest.raises(ImageError, match="train/tank/1.png: not a readable image"):
        opened(folder, data_dir)
    assert not list(data_dir.glob("*/*/jaxatr.json"))


def test_corrupt_images_are_skipped_and_listed_on_request(folder, data_dir):
    corrupt(folder / "test/car/0.png")  # the very first, which decides the dtype
    corrupt(folder / "train/tank/1.png")
    dataset = opened(folder, data_dir, skip_corrupt=True)
    assert [path for path, _ in dataset.skipped] == ["test/car/0.png", "train/tank/1.png"]
    assert all("not a readable image" in why for _, why in dataset.skipped)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"test": 5, "train": 11}
    assert opened(folder, data_dir, skip_corrupt=True).skipped == dataset.skipped
    with pytest.raises(ImageError, match="test/car/0.png.*2 such files were left out"):
        opened(folder, data_dir)


@pytest.mark.parametrize("splits", [("train",), ("train", "test")])
def test_nothing_left_to_read_is_an_error(folder, data_dir, splits):
    for split in splits:
        for path in (folder / split).rglob("*.png"):
            corrupt(path)
    with pytest.raises(ValueError, match="none of its images|no image of split 'train'"):
        opened(folder, data_dir, skip_corrupt=True)


def test_a_file_that_may_not_be_read_is_named(folder, data_dir):
    found = SOURCE.scan(Request(folder, {}, skip_corrupt=False))
    (folder / "train/car/0.png").unlink()
    with pytest.raises(ImageError, match="train/car/0.png: No such file"):
        next(found.contents(data_dir).splits["train"]())


def test_gray_and_colour_jpeg(tmp_path, data_dir):
    for name, mode in (("a", "L"), ("b", "RGB")):
        (tmp_path / "s" / name).mkdir(parents=True)
        for number in range(2):
            Image.new(mode, (8, 8), 100).save(tmp_path / "s" / name / f"{number}.jpeg")
    split = opened(tmp_path / "s", data_dir).splits["train"]
    assert sorted(split.columns["channels"].tolist()) == [1, 3]
