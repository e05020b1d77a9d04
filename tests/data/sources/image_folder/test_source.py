import json
import os
import shutil
import sys
import tracemalloc
import unicodedata
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from jaxatr import data
from jaxatr.data import ImageError, open_dataset, write_table
from jaxatr.data.source import Request
from jaxatr.data.sources.image_folder import PART as SOURCE
from jaxatr.data.sources.image_folder import table
from jaxatr.data.sources.image_folder.folder import Found, divided, find
from jaxatr.data.sources.image_folder.layouts import Listed


def opened(source, data_dir, **arguments):
    return open_dataset("image_folder", source=source, data_dir=data_dir, **arguments)


def scan(root, *, test_fraction=0.2, **options):
    return divided(find(root, **options), test_fraction)


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
    with pytest.raises(ValueError, match="b/y.png is uint16 .* uint8, .*: convert the images"):
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
        ("{", "coarse.json: not valid JSON"),
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
    with pytest.raises(ValueError, match="no folder or file .*gone$"):
        scan(tmp_path / "gone")
    (tmp_path / "set.7z").write_bytes(b"7z")
    with pytest.raises(ValueError, match="set.7z is a file, but neither"):
        scan(tmp_path / "set.7z")
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"no images in .*; {looked}"):
        scan(tmp_path)
    save(tmp_path / "train/a/x.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match=f"has only one class, 'a'; {looked}"):
        scan(tmp_path)


@pytest.mark.parametrize("odd", ["x.png", "train/x.png", "train/a/deep/x.png", "train/a/b/c/x.png"])
def test_an_image_out_of_place_is_named(folder, save, odd):
    save(folder / odd, np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match=f"{odd} is misplaced: 18 others are 2 folders deep"):
        scan(folder)


def test_images_in_no_class_folder_or_too_deep_are_an_error(tmp_path, save):
    for name in ("chips/0", "chips/1", "deep/a/b/c/d/0", "deep/x/b/c/e/0"):
        save(tmp_path / f"{name}.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match="chips/0.png is in no class folder; looked for"):
        scan(tmp_path / "chips")
    with pytest.raises(ValueError, match="a/b/c/d/0.png is 4 folders deep; looked for"):
        scan(tmp_path / "deep")


def test_a_stray_folder_is_blamed_and_not_the_others(tmp_path, save):
    for name in ("car/0", "car/1", "tank/0", "tank/old/1", "tank/old/2"):
        save(tmp_path / f"{name}.png", np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match="tank/old/1.png is misplaced: 3 others are 1 folder deep"):
        scan(tmp_path)
    with pytest.raises(ValueError, match="car/0.png is misplaced: 2 others are 2 folders deep"):
        scan(tmp_path, layout="split/class")
    with pytest.raises(ValueError, match="layout: got 'class/spilt', wanted one of class,"):
        scan(tmp_path, layout="class/spilt")


def images(root, save, *paths):
    for number, path in enumerate(paths):
        save(root / f"{path}.png", np.full((2, 2), number, np.uint8))
    return root


def listed(found):
    """Returns a scan's result: split names to paths and classes."""
    return {
        split: [(path, found.classes[label]) for path, label in files]
        for split, files in found.files.items()
    }


def test_split_folders_may_have_any_name(tmp_path, save):
    root = images(tmp_path, save, *(f"{s}/{c}/0" for s in ("Day 1", "night") for c in "ab"))
    assert sorted(scan(root).files) == ["day_1", "night"]
    images(root, save, "day-1/a/0")
    with pytest.raises(ValueError, match="'Day 1' and 'day-1' would both be split 'day_1'"):
        scan(root)


def test_coarse_classes_above_the_classes(tmp_path, save):
    paths = [f"{c}/{i}" for c in ("wheeled/car", "wheeled/van", "tracked/tank") for i in range(5)]
    found = scan(images(tmp_path, save, *paths))
    assert found.classes == ("car", "tank", "van")
    assert (found.coarse_classes, found.fine_to_coarse) == (("tracked", "wheeled"), (1, 0, 1))
    assert {split: len(files) for split, files in found.files.items()} == {"train": 12, "test": 3}
    as_splits = scan(tmp_path, layout="split/class")
    assert sorted(as_splits.files) == ["tracked", "wheeled"] and as_splits.coarse_classes is None
    (tmp_path / "coarse.json").write_text("{}")
    with pytest.raises(ValueError, match="no coarse class for car"):
        scan(tmp_path)
    (tmp_path / "coarse.json").write_text('{"car": "x", "tank": "y", "van": "x"}')
    with pytest.raises(ValueError, match="already have coarse classes"):
        scan(tmp_path)


def test_splits_above_coarse_classes(tmp_path, save):
    paths = [f"{s}/{c}/0" for s in ("train", "test") for c in ("wheeled/car", "tracked/tank")]
    found = scan(images(tmp_path, save, *paths))
    assert found.coarse_classes == ("tracked", "wheeled")
    assert listed(found)["test"] == [
        ("test/tracked/tank/0.png", "tank"),
        ("test/wheeled/car/0.png", "car"),
    ]
    images(tmp_path, save, "train/tracked/car/0")
    with pytest.raises(ValueError, match="'car' belongs to 'wheeled', but by train/tracked/car"):
        scan(tmp_path)


def test_the_usual_names_of_splits_are_not_coarse_classes(tmp_path, save):
    found = scan(images(tmp_path, save, "Train/a/0", "Train/b/0", "test/c/0"))
    assert sorted(found.files) == ["test", "train"] and found.coarse_classes is None


def test_links_are_followed(folder, tmp_path, save):
    outside = save(tmp_path / "outside/x.png", np.full((6, 8), 99, np.uint8))
    inside = folder / "train/car/0.png"
    (folder / "train/car/same.png").symlink_to(inside)
    (folder / "train/car/link.png").symlink_to(outside)
    (folder / "train/bus").symlink_to(outside.parent)
    found = dict(scan(folder).files["train"])
    assert {"train/car/same.png", "train/car/link.png", "train/bus/x.png"} <= set(found)
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    assert scan(linked).files == scan(folder).files


def test_a_folder_is_read_once_and_links_to_nothing_are_counted(folder, data_dir):
    before = scan(folder).files
    (folder / "train/car/round").symlink_to(folder)
    (folder / "train/bus").symlink_to(folder / "train/car")
    (folder / "train/car/gone.png").symlink_to(folder / "nothing")
    (folder / "train/car/itself.png").symlink_to("itself.png")
    assert scan(folder).files == before
    assert opened(folder, data_dir).notes == (
        "left out: 2 folders that are read at another path (first: train/bus)",
        "left out: 2 links to nothing (first: train/car/gone.png)",
    )


def test_skipped_files_are_counted_by_kind(folder, data_dir):
    for name in ("a.txt", "b.TXT", "c.xml", "README", ".hidden.txt"):
        (folder / "train" / name).write_text("")
    notes = opened(folder, data_dir).notes
    assert notes == (
        "left out: 2 of type .txt (first: train/a.txt)",
        "left out: 1 of type .xml (first: train/c.xml)",
        "left out: 1 without a suffix (first: train/README)",
    )


def test_where_there_are_no_images_the_kinds_are_named(tmp_path):
    (tmp_path / "a.dcm").write_text("")
    with pytest.raises(ValueError, match=r"no images in .* \(1 of type .dcm\)"):
        scan(tmp_path)


TABLE = "path,label,coarse,split\nx/0.png,car,wheeled,Train\nx/1.png,tank,tracked,test\n"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_of_images(tmp_path, data_dir, save, separator):
    images(tmp_path, save, "x/0", "x/1", "x/2")
    (tmp_path / "list.csv").write_text("\ufeff" + TABLE.replace(",", separator), "utf-8")
    dataset = opened(tmp_path / "list.csv", data_dir)
    assert dataset.classes == ("car", "tank") and dataset.fine_to_coarse == (1, 0)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"test": 1, "train": 1}
    assert dataset.splits["test"][0]["image"].max() == 1
    by_option = opened(tmp_path, data_dir, options={"table": "list.csv"})
    assert by_option.fingerprint == dataset.fingerprint


def test_groups_of_a_table_stay_in_one_split(tmp_path, data_dir, save):
    images(tmp_path, save, *(f"x/{i}" for i in range(40)))
    rows = [f"x/{i}.png,{'car' if i % 2 else 'van'},flight {i // 4}" for i in range(40)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,group", *rows]))
    dataset = opened(tmp_path / "list.csv", data_dir)
    parts = {name: {*map(str, split.columns["group"])} for name, split in dataset.splits.items()}
    assert len(dataset.splits["test"]) == 8 and not parts["train"] & parts["test"]
    before = dataset.fingerprint
    text = (tmp_path / "list.csv").read_text()
    (tmp_path / "list.csv").write_text(text.replace("flight 9", "flight 8"))
    assert opened(tmp_path / "list.csv", data_dir).fingerprint != before
    rows = [f"x/{i}.png,{'car' if i % 2 else 'van'},{i * (i % 2)}" for i in range(40)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,group", *rows]))
    with pytest.raises(ValueError, match="group: the groups of 'van' cannot be divided"):
        opened(tmp_path / "list.csv", data_dir)


def test_classes_of_fewer_groups_than_folds_are_in_both_splits(tmp_path):
    flights = {"car": [2] * 10, "van": [7, 3], "bus": [6, 4], "jeep": [5, 3, 2]}
    listed = [
        Listed(f"{name}/{flight}/{i}.png", name, None, None, f"{name}{flight}")
        for name, sizes in flights.items()
        for flight, size in enumerate(sizes)
        for i in range(size)
    ]
    found = divided(Found(tmp_path, tmp_path, listed, ()), 0.2)
    groups = {
        split: {found.groups[path] for path, _ in files} for split, files in found.files.items()
    }
    assert not groups["train"] & groups["test"]
    tested = Counter(path.split("/")[0] for path, _ in found.files["test"])
    # The largest group, of vans, begins the first fold, which has none of the last two classes.
    assert tested == {"car": 4, "van": 7, "bus": 4, "jeep": 2}


@pytest.mark.parametrize("fraction, wanted", [(0.1, 4), (0.5, 20), (0.8, 32), (0.9, 36)])
def test_the_share_of_groups_that_is_tested_may_be_large(tmp_path, fraction, wanted):
    listed = [Listed(f"{i}", f"{i % 2}", None, None, f"{i}") for i in range(40)]
    found = divided(Found(tmp_path, tmp_path, listed, ()), fraction)
    tested = Counter(label for _, label in found.files["test"])
    assert tested == {0: wanted // 2, 1: wanted // 2} and len(found.files["train"]) == 40 - wanted


def test_a_table_of_parquet(tmp_path, save):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    images(tmp_path, save, *(f"x/{i}" for i in range(10)))
    columns = {"File": [f"x/{i}.png" for i in range(10)], "class": [i % 2 for i in range(10)]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "list.parquet")
    found = SOURCE.scan(Request(tmp_path / "list.parquet", {}, skip_corrupt=False))
    assert found.contents(tmp_path).classes == ("0", "1")
    assert len(scan(tmp_path, table_name="list.parquet").files["test"]) == 2
    (tmp_path / "list.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="list.parquet: not a readable Parquet table"):
        scan(tmp_path, table_name="list.parquet")


def test_a_table_of_images_is_refused_without_reading_all_of_it(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = [{"bytes": bytes(1 << 16)}] * 512
    parquet.write_table(pyarrow.table({"image": cells}), tmp_path / "list.parquet")
    tracemalloc.start()
    with pytest.raises(ValueError, match="row 1: got dict, wanted the path of an image"):
        next(table.read_paths(tmp_path / "list.parquet"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 512 * (1 << 16) / 4


def test_names_that_are_not_utf8_are_prepared(tmp_path, save, data_dir):
    images(tmp_path / "set", save, *(f"{name}/{i}" for name in ("car", "van") for i in range(3)))
    root = os.fsencode(tmp_path / "set")
    os.rename(root + b"/car/0.png", root + b"/car/caf\xe9.png")
    os.rename(root + b"/van", root + b"/v\xe4n")
    dataset = opened(tmp_path / "set", data_dir)
    assert dataset.classes == ("car", r"v\udce4n")
    paths = {path for split in dataset.splits.values() for path in split.columns["path"]}
    assert paths == {r"car/caf\udce9.png", "car/1.png", "car/2.png"} | {
        rf"v\udce4n/{i}.png" for i in range(3)
    }


def test_a_hierarchy_may_begin_with_a_byte_order_mark(tmp_path, save):
    images(tmp_path, save, *(f"{name}/{i}" for name in ("car", "vän") for i in range(3)))
    coarse = json.dumps({"car": "straße", "vän": "straße"}, ensure_ascii=False)
    (tmp_path / "coarse.json").write_bytes(coarse.encode("utf-8-sig"))
    assert scan(tmp_path).coarse_classes == ("straße",)


def test_without_its_package_parquet_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "list.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"list.parquet: .*pip install 'jaxatr\[parquet\]'"):
        scan(tmp_path, table_name="list.parquet")


@pytest.mark.parametrize(
    "text, match",
    [
        ("", "no images are listed"),
        ("a,b\n1,2\n", r"no column 'path' \(it has a, b\)"),
        ("path,b\n1,2\n", "no column 'label'"),
        ("path,label\nx,\n", "line 2 has no label"),
        ("path,label,split\nx,a,train\ny,b\n", "line 3 has no split"),
        ("path,label,split\nx,a,--\n", "line 2: a split's name"),
        ("path,label\nx,a\nx,b\n", "line 3: 'x' is already in line 2"),
        ("path,label\nx,a\ny/../x,b\n", "line 3: 'y/../x' is already in line 2"),
        ("path,label\nx,a,\ny,tank, old\n", "line 3 has more cells .* ' old'; text with ','"),
        ("path;label\nx;a, b\ny;a;b\n", "line 3 has more cells .* 'b'; text with ';'"),
        ("path,label,coarse\nx,a,c\ny,b,c\nz,a,d\n", "'a' belongs to 'c', but by z to 'd'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, text, match):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=match):
        scan(tmp_path, table_name="list.csv")


def test_a_table_in_an_archive_stays_in_it(tmp_path, data_dir, save):
    images(tmp_path, save, "s/x/0", "s/x/1")
    (tmp_path / "s/list.csv").write_text(TABLE)
    shutil.make_archive(str(tmp_path / "s"), "zip", tmp_path, "s")
    options = {"table": "list.csv"}
    assert opened(tmp_path / "s.zip", data_dir, options=options).classes == ("car", "tank")
    (tmp_path / "s/list.csv").write_text(TABLE.replace("x/0", "../x/0"))
    shutil.make_archive(str(tmp_path / "s"), "zip", tmp_path, "s")
    with pytest.raises(ValueError, match="'../x/0.png' leaves its folder"):
        opened(tmp_path / "s.zip", data_dir, options=options)


def test_images_that_a_table_lists_in_vain(tmp_path, data_dir, save):
    images(tmp_path, save, "x/0")
    (tmp_path / "list.csv").write_text(TABLE + "x/2.png,tank,tracked,train\n")
    with pytest.raises(
        ImageError, match="2 images .*--skip_corrupt.*x/1.png: No such file.*; .*x/2"
    ):
        opened(tmp_path / "list.csv", data_dir)


def corrupt(path):
    path.write_bytes(path.read_bytes()[:40])


def test_a_corrupt_image_is_named(folder, data_dir):
    corrupt(folder / "train/tank/1.png")
    with pytest.raises(ImageError, match="train/tank/1.png: not a readable image"):
        opened(folder, data_dir)
    assert not list(data_dir.glob("*/*/jaxatr.json"))


def test_all_corrupt_images_are_named_at_once(folder, data_dir):
    for number in range(4):
        for name in ("car", "tank", "van"):
            corrupt(folder / f"train/{name}/{number}.png")
    with pytest.raises(ImageError) as error:
        opened(folder, data_dir)
    assert str(error.value).startswith(
        "12 images cannot be read (--skip_corrupt, in a training --config.data.skip_corrupt=true, "
        "leaves them out): "
    )
    assert str(error.value).count("not a readable image") == 10
    assert str(error.value).endswith("; and 2 more")


def test_corrupt_images_are_skipped_and_listed_on_request(folder, data_dir):
    corrupt(folder / "test/car/0.png")  # the first image determines the dtype
    corrupt(folder / "train/tank/1.png")
    dataset = opened(folder, data_dir, skip_corrupt=True)
    assert [path for path, _ in dataset.skipped] == ["test/car/0.png", "train/tank/1.png"]
    assert all(why.startswith("not a readable image") for _, why in dataset.skipped)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"test": 5, "train": 11}
    assert opened(folder, data_dir, skip_corrupt=True).skipped == dataset.skipped
    with pytest.raises(ImageError, match="test/car/0.png.*2 such files were left out"):
        opened(folder, data_dir)


def test_errors_name_the_archive_and_the_file_in_it(folder, data_dir, tmp_path):
    for inner, wrapped in (("", "x.zip"), (folder.name, f"y.zip/{folder.name}")):
        corrupt(folder / "train/tank/1.png")
        root = folder.parent if inner else folder
        name = tmp_path / wrapped.partition(".")[0]
        source = shutil.make_archive(str(name), "zip", root, inner or None)
        wanted = f"{tmp_path}/{wrapped}/train/tank/1.png: not a readable image"
        with pytest.raises(ImageError, match=f"^{wanted}"):
            opened(source, data_dir)
        ((path, why),) = opened(source, data_dir, skip_corrupt=True).skipped
        assert path == "train/tank/1.png" and why.startswith("not a readable image")
    (folder / "coarse.json").write_text("no JSON")
    source = shutil.make_archive(str(tmp_path / "z"), "zip", folder)
    with pytest.raises(ValueError, match=f"^{tmp_path}/z.zip/coarse.json: not valid JSON"):
        opened(source, data_dir)
    (tmp_path / "words").mkdir()
    (tmp_path / "words/a.txt").write_text("")
    source = shutil.make_archive(str(tmp_path / "w"), "zip", tmp_path / "words")
    with pytest.raises(ValueError, match=f"^no images in {tmp_path}/w.zip .1 of type .txt"):
        opened(source, data_dir)


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


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Škoda") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("name", [DECOMPOSED, f"{COMPOSED} ", f" {DECOMPOSED}"])
def test_a_name_has_one_form(tmp_path, save, data_dir, name):
    paths = [f"train/{COMPOSED}/0", f"test/{name}/0", "train/Tatra/0", "test/Tatra/0"]
    images(tmp_path / "a", save, *paths)
    found = opened(tmp_path / "a", data_dir)
    assert found.classes == ("Tatra", COMPOSED) and len(found.splits["test"]) == 2
    assert data.known_unknown(f"known:{name}", found.classes).known == (COMPOSED,)
    assert len(data.select(found.splits["test"], classes=[name])) == 1
    (tmp_path / "a/coarse.json").write_text(json.dumps({name: name, "Tatra": "b"}))
    table = (
        f"path,label,coarse\n{paths[0]}.png,{name},{name}\n{paths[1]}.png,{COMPOSED},{COMPOSED}\n"
    )
    (tmp_path / "a/list.csv").write_text(f"{table}{paths[2]}.png,Tatra,b\n")
    found = scan(tmp_path / "a")
    assert found.coarse_classes == ("b", COMPOSED)
    (tmp_path / "a/coarse.json").unlink()
    assert scan(tmp_path / "a", table_name="list.csv").coarse_classes == ("b", COMPOSED)


def test_folders_in_two_forms_are_splits_of_one_class(tmp_path, save):
    images(tmp_path, save, f"a/{COMPOSED}/0", f"b/{DECOMPOSED}/0", "a/x/0", "b/x/0")
    found = scan(tmp_path)
    assert found.classes == ("x", COMPOSED) and sorted(found.files) == ["a", "b"]
    assert found.coarse_classes is None


def test_text_like_a_formula_goes_through_a_csv_table(tmp_path):
    names = ["=1+1.png", "-a.png", "@b.png", "\tc.png", "'=d.png", "'e.png", "f.png"]
    write_table(tmp_path / "list.csv", [{"path": name, "label": "+x"} for name in names])
    text = (tmp_path / "list.csv").read_text()
    assert "'=1+1.png,'+x" in text and "''=d.png" in text and "\n'e.png," in text
    listed = table.read_table(tmp_path / "list.csv", inside=True)
    assert [one.path for one in listed] == [name.strip() for name in names]
    assert {one.label for one in listed} == {"+x"}
