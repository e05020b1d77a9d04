"""Tests on the real archives in the folder given by JAXATR_DATA."""

import tarfile
from collections import Counter
from pathlib import PurePosixPath

import numpy as np
import pytest

from jaxatr import data

MSTAR_TRAIN = (299, 233, 298, 256, 233, 299, 298, 232, 299, 299)


def opened(real_data, directory, name):
    archive = real_data / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no real images: there is no {archive}")
    return data.open_dataset("image_folder", source=archive, data_dir=directory)


@pytest.fixture(scope="module")
def mstar(real_data, tmp_path_factory):
    return opened(real_data, tmp_path_factory.mktemp("mstar"), "mstar10")


def part_of(real_data, directory, name, each):
    """Returns a data set of the first ``each`` images of each class and split of an archive."""
    archive = real_data / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no real images: there is no {archive}")
    taken = Counter()
    with tarfile.open(archive) as tar:
        for member in tar:
            folder = PurePosixPath(member.name).parent
            if member.isfile() and taken[folder] < each:
                taken[folder] += 1
                path = directory / "source" / "/".join(PurePosixPath(member.name).parts[-3:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
    source = directory / "source"
    return data.open_dataset("image_folder", source=source, data_dir=directory / "data")


@pytest.fixture(scope="module")
def part_of_mstar(real_data, tmp_path_factory):
    """Six chips of each class and split, enough to check what depends on their sizes."""
    return part_of(real_data, tmp_path_factory.mktemp("part"), "mstar10", 6)


@pytest.mark.slow
def test_mstar_is_whole(mstar):
    names = "2S1 BMP2 BRDM_2 BTR60 BTR70 D7 T62 T72 ZIL131 ZSU_23_4"
    assert mstar.classes == tuple(names.split())
    train, test = mstar.splits["train"], mstar.splits["test"]
    assert (len(train), len(test), train.dtype) == (2746, 2425, np.uint8)
    assert tuple(np.bincount(train.columns["label"])) == MSTAR_TRAIN
    assert set(train.columns["channels"]) == {1}


def test_mstar_sizes_give_the_class_away_and_must_be_cropped(part_of_mstar):
    train = part_of_mstar.splits["train"]
    assert len(train) == 60
    for name, size in {"2S1": (158, 158), "ZIL131": (192, 193), "T72": (128, 128)}.items():
        of_class = data.select(train, classes=[name])
        sizes = {tuple(train.columns[side][of_class[0]] for side in ("width", "height"))}
        assert sizes & {size, size[::-1]}
    everything = np.arange(len(train))
    with pytest.raises(ValueError, match="do not share a shape.*center_crop"):
        data.eval_batches(
            train, everything, train.columns["label"], chip=data.Chip(), batch_size=32
        )
    chip = data.Chip(center_crop=128)
    batches = data.eval_batches(train, everything, train.columns["label"], chip=chip, batch_size=32)
    assert {batch["image"].shape for batch in batches} == {(32, 128, 128, 1)}
    with pytest.raises(ValueError, match="128x12[89].* smaller than data.center_crop=150"):
        data.image_statistics(train, everything, data.Chip(center_crop=150))


@pytest.mark.slow
def test_an_epoch_of_mstar_has_each_chip_of_the_known_vehicles_once(mstar):
    train = mstar.splits["train"]
    split = data.known_unknown("mstar/reference-0", mstar.classes)
    indices = data.select(train, classes=split.known)
    known = [mstar.classes.index(name) for name in split.known]
    labels = np.searchsorted(known, train.columns["label"][indices])
    chip = data.Chip(center_crop=64)
    stream = data.train_batches(train, indices, labels, chip=chip, batch_size=32, seed=0)
    batches = [next(stream) for _ in range(len(indices) // 32)]
    assert {batch["image"].shape for batch in batches} == {(32, 64, 64, 1)}
    drawn = np.bincount(np.concatenate([batch["label"] for batch in batches]))
    # An epoch leaves out at most the rest of a batch.
    assert (np.abs(drawn - np.bincount(labels)) < 32).all() and len(drawn) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, classes, each, colour",
    [("cifar10", 10, 100, [125, 123, 114]), ("cifar100_subset", 100, 20, [129, 124, 112])],
)
def test_cifar_folders(real_data, tmp_path, name, classes, each, colour):
    dataset = part_of(real_data, tmp_path, name, each)
    assert len(dataset.classes) == classes
    train = dataset.splits["train"]
    for split in (train, dataset.splits["test"]):
        assert np.bincount(split.columns["label"]).tolist() == [each] * classes
    labels = train.columns["label"]
    everything = np.arange(len(train))
    stream = data.train_batches(train, everything, labels, chip=data.Chip(), batch_size=64, seed=0)
    batch = next(stream)
    assert batch["image"].shape == (64, 32, 32, 3) and batch["image"].dtype == np.uint8
    mean, std = data.image_statistics(train, everything, data.Chip())
    np.testing.assert_allclose(mean, colour, atol=3)
    assert (np.abs(std - 64) < 9).all()
