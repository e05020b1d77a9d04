import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxatr import data
from jaxatr.data import index, records
from jaxatr.data.sources import simulated


@pytest.fixture
def preparations(monkeypatch):
    """Counts the preparations, i.e. how often records are written."""
    calls = []
    write = records.write

    def counted(*args, **kwargs):
        calls.append(args)
        return write(*args, **kwargs)

    monkeypatch.setattr(records, "write", counted)
    return calls


def values(dataset, split="train"):
    found = dataset.splits[split]
    return sorted(int(found[i]["image"][0, 0, 0]) for i in range(len(found)))


def test_a_folder_is_prepared_once(folder, data_dir, preparations):
    first = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
    again = data.open_dataset("image_folder", source=str(folder), data_dir=str(data_dir))
    assert len(preparations) == 1
    assert first.fingerprint == again.fingerprint and first.directory == again.directory
    assert first.name == "image_folder" and first.version == "1.0.0"


def test_any_change_is_noticed(folder, data_dir, save, preparations):
    def opened():
        return data.open_dataset("image_folder", source=folder, data_dir=data_dir)

    seen = [opened()]
    save(folder / "train/car/0.png", np.full((6, 8), 77, np.uint8))  # other content
    seen.append(opened())
    assert 77 in values(seen[-1]) and 77 not in values(seen[0])
    save(folder / "train/car/9.png", np.full((6, 8), 78, np.uint8))  # one more
    seen.append(opened())
    assert 78 in values(seen[-1])
    (folder / "train/car/9.png").unlink()  # one less
    seen.append(opened())
    assert 78 not in values(seen[-1])
    (folder / "train/car/1.png").rename(folder / "train/van/1b.png")  # another label
    seen.append(opened())
    (folder / "coarse.json").write_text('{"car": "a", "tank": "b", "van": "a"}')
    seen.append(opened())
    assert seen[-1].coarse_classes == ("a", "b")
    assert len(preparations) in (5, 6)  # removing the added file restores an earlier state
    fingerprints = [dataset.fingerprint for dataset in seen]
    assert fingerprints[1] == fingerprints[3]
    assert len({*fingerprints}) == 5


def rewritten(path, content):
    """Replaces a file's content by other bytes of the same length, and restores its date."""
    before = path.stat()
    assert len(content) == before.st_size and content != path.read_bytes()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_a_change_of_equal_size_and_date_is_noticed(tmp_path, data_dir, preparations):
    for split in ("train", "test"):
        for label, name in enumerate("ab"):
            (tmp_path / "s" / split / name).mkdir(parents=True)
            Image.new("L", (4, 4), label).save(tmp_path / "s" / split / name / "x.tif")

    def packed():
        return Path(shutil.make_archive(str(tmp_path / "new"), "tar", tmp_path / "s")).read_bytes()

    (tmp_path / "s.tar").write_bytes(packed())
    sources = (tmp_path / "s", tmp_path / "s.tar")
    for source in sources:
        assert values(data.open_dataset("image_folder", source=source, data_dir=data_dir)) == [0, 1]
    changed = tmp_path / "s/train/b/x.tif"
    rewritten(changed, changed.read_bytes().replace(bytes([1] * 16), bytes([9] * 16)))
    rewritten(tmp_path / "s.tar", packed())
    for source in sources:
        assert values(data.open_dataset("image_folder", source=source, data_dir=data_dir)) == [0, 9]
    assert len(preparations) == 4


def test_other_names_of_the_coarse_classes_are_noticed(folder, data_dir):
    for coarse in ("ab", "cd"):
        names = dict(zip(("car", "tank", "van"), (*coarse, coarse[0]), strict=True))
        (folder / "coarse.json").write_text(json.dumps(names))
        dataset = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
        assert dataset.coarse_classes == tuple(coarse)
        assert dataset.fine_to_coarse == (0, 1, 0)


def test_the_fingerprint_is_of_the_content(folder, data_dir, tmp_path):
    first = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(copy / "train/car/0.png", (1, 1))
    second = data.open_dataset("image_folder", source=copy, data_dir=tmp_path / "elsewhere")
    assert first.fingerprint == second.fingerprint
    assert first.directory.name != second.directory.name


@pytest.mark.parametrize("suffix", ["tar.gz", "zip"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_an_archive_is_its_folder(folder, data_dir, tmp_path, preparations, suffix, wrapped):
    kind = {"tar.gz": "gztar", "zip": "zip"}[suffix]
    top = (folder.parent, folder.name) if wrapped else (folder, ".")
    archive = shutil.make_archive(str(tmp_path / "packed"), kind, *top)
    plain = data.open_dataset("image_folder", source=folder, data_dir=data_dir)
    packed = data.open_dataset("image_folder", source=archive, data_dir=data_dir)
    assert packed.fingerprint == plain.fingerprint
    data.open_dataset("image_folder", source=archive, data_dir=data_dir)
    assert len(preparations) == 2
    assert not list(data_dir.rglob("*.png"))  # extracted files are deleted
    shutil.copy(archive, tmp_path / "other")
    os.utime(archive, (1, 1))
    data.open_dataset("image_folder", source=archive, data_dir=data_dir)
    assert len(preparations) == 3


def test_an_archive_with_nothing_in_it(tmp_path, data_dir):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    with pytest.raises(ValueError, match="no images|there is no folder"):
        data.open_dataset("image_folder", source=tmp_path / "a.tar", data_dir=data_dir)


def test_a_name_opens_the_prepared_set(folder, data_dir):
    prepared = data.prepare("image_folder", source=folder, data_dir=data_dir, as_name="mine")
    opened = data.open_dataset("mine", data_dir=data_dir)
    assert opened.name == prepared.name == "mine"
    assert opened.fingerprint == prepared.fingerprint


def test_a_name_follows_its_source_while_there_is_one(folder, data_dir, save, preparations):
    options = {"test_fraction": 0.5}
    data.prepare("image_folder", source=folder, data_dir=data_dir, as_name="mine", options=options)
    save(folder / "train/car/0.png", np.full((6, 8), 99, np.uint8))
    assert 99 in values(data.open_dataset("mine", data_dir=data_dir))
    assert len(preparations) == 2
    shutil.rmtree(folder)
    assert 99 in values(data.open_dataset("mine", data_dir=data_dir))
    assert len(preparations) == 2


def test_a_name_remembers_that_corrupt_images_may_be_skipped(folder, data_dir):
    (folder / "train/car/0.png").write_bytes(b"broken")
    data.prepare(
        "image_folder", source=folder, data_dir=data_dir, as_name="mine", skip_corrupt=True
    )
    assert len(data.open_dataset("mine", data_dir=data_dir).skipped) == 1


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A data directory with a set named ``mine``."""
    root = tmp_path_factory.mktemp("named")
    for name in ("s/train/a", "s/train/b"):
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(root / name / "x.png")
    data.prepare("image_folder", source=root / "s", data_dir=root / "data", as_name="mine")
    return root / "data"


@pytest.mark.parametrize(
    "name, arguments, match",
    [
        ("simulatd", {}, "no data set 'simulatd'; did you mean 'simulated'"),
        ("cifra10", {}, "did you mean 'cifar10'"),
        (
            "min",
            {},
            "did you mean 'mine'.*arrays, dsiac, .*, mine, mstar, scenes, .*, whole_scenes in",
        ),
        ("image_folder", {}, "image_folder needs a source.*: --data_source=PATH"),
        ("image_foldr", {"source": "x"}, "takes no source.*did you mean 'image_folder'"),
        ("mine", {"options": {"x": 1}}, "'mine' takes no options"),
        ("simulated", {"options": {"aspect": 1}}, "no option 'aspect'; did you mean 'aspects'"),
        ("image_folder", {"source": "x", "options": {"fraction": 1}}, "no option 'fraction'"),
        ("image_folder", {"source": "x", "options": {"root": 1}}, "no option 'root'"),
        ("image_folder", {"source": "gone"}, "there is no folder .*gone; .*--data_source=PATH"),
        ("mine", {"data_dir": "gone"}, "no data set 'mine'.* in gone, which does not exist"),
    ],
)
def test_missing_entries_are_named(mine, name, arguments, match):
    with pytest.raises(ValueError, match=match):
        data.open_dataset(name, **{"data_dir": mine, **arguments})
    assert not Path("gone").exists()


@pytest.mark.parametrize(
    "name, as_name, match",
    [
        ("image_folder", "cifar10", "already the name"),
        ("image_folder", "simulated", "already the name"),
        ("image_folder", "../up", "name: got '../up', wanted letters"),
        ("image_folder", "dsiac", "already the name"),
        (
            "simulated",
            "mine",
            "only sets of arrays, dsiac, .*, mstar, scenes, whole_scenes can",
        ),
    ],
)
def test_a_name_must_be_free_and_plain(folder, data_dir, name, as_name, match):
    source = folder if name == "image_folder" else None
    with pytest.raises(ValueError, match=match):
        data.prepare(name, source=source, data_dir=data_dir, as_name=as_name)


def test_the_default_place_is_used(folder, data_dir, monkeypatch):
    monkeypatch.setenv("JAXATR_DATA_DIR", str(data_dir))
    dataset = data.open_dataset("image_folder", source=folder)
    assert dataset.directory.is_relative_to(data_dir)


def test_an_index_of_another_version_is_not_read(folder, data_dir, monkeypatch):
    data.prepare("image_folder", source=folder, data_dir=data_dir, as_name="mine")
    monkeypatch.setattr(index, "INDEX_VERSION", 2)
    with pytest.raises(ValueError, match="prepare it again"):
        data.open_dataset("mine", data_dir=data_dir)
    data.prepare("image_folder", source=folder, data_dir=data_dir, as_name="mine")
    assert data.open_dataset("mine", data_dir=data_dir).name == "mine"


SIMULATED = {"aspects": 1, "ranges": (1000,), "bands": ("visible",)}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("rendered")
    return data_dir, data.open_dataset("simulated", data_dir=data_dir, options=SIMULATED)


@pytest.mark.parametrize(
    "name", ["jaxatr.json", "jaxatr-train.npz", "dataset_info.json", "features.json", "records-*"]
)
def test_a_damaged_set_is_named(folder, data_dir, name):
    source = {"source": folder, "data_dir": data_dir}
    directory = data.open_dataset("image_folder", **source).directory
    for path in directory.glob(name):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=f"{directory}: a damaged set .*: delete this folder"):
        data.open_dataset("image_folder", **source).splits["train"].image(0)


def test_simulated_is_prepared_on_first_use(rendered):
    data_dir, dataset = rendered
    options = {**SIMULATED, "ranges": [1000]}
    again = data.open_dataset("simulated", data_dir=data_dir, options=options)
    assert again.directory == dataset.directory
    assert len(dataset.classes) == 8
    expected = simulated.generate("train", **SIMULATED)
    split = dataset.splits["train"]
    assert len(split) == len(expected["label"]) == 8
    for number in range(len(split)):
        example = split[number]
        for name in ("image", "mask", "box", "label", "id", "track", "frame", "range_m"):
            np.testing.assert_array_equal(example[name], expected[name][number], name)
        assert example["aspect_deg"] == pytest.approx(expected["aspect_deg"][number])
        assert example["band"] == "visible"
        smaller = data.Chip(center_crop=60, size=30)
        assert smaller.mask(example["mask"]).shape == smaller(example["image"]).shape[:2]
    assert set(split.columns["id"]).isdisjoint(dataset.splits["test"].columns["id"])


def test_simulated_is_of_its_options(rendered):
    data_dir, one = rendered
    other = data.open_dataset("simulated", data_dir=data_dir, options={**SIMULATED, "seed": 1})
    assert one.fingerprint != other.fingerprint
    assert one.directory != other.directory


WITHOUT_TENSORFLOW = """
import sys
import numpy as np
from jaxatr import data

source, data_dir = sys.argv[1:]
dataset = data.open_dataset("image_folder", source=source, data_dir=data_dir)
split = dataset.splits["train"]
labels = split.columns["label"]
chip = data.Chip()
next(data.train_batches(split, np.arange(12), labels, chip=chip, batch_size=4, seed=0))
list(data.eval_batches(split, np.arange(12), labels, chip=chip, batch_size=5))
assert "tensorflow" not in sys.modules
assert "torch" not in sys.modules
"""


def test_tensorflow_is_never_imported_and_nothing_is_printed(folder, data_dir):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(folder), str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "Downloading" not in done.stderr and "Shuffling" not in done.stderr
