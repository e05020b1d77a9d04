"""Tests on the real archives in the folder given by JAXATR_DATA."""

import tarfile
import time
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


@pytest.fixture(scope="module")
def part_of_mstar(real_data, tmp_path_factory):
    """Six chips of each class and split, enough to check what depends on their sizes."""
    archive, root = real_data / "mstar10.tar.gz", tmp_path_factory.mktemp("part")
    if not archive.is_file():
        pytest.skip(f"no real images: there is no {archive}")
    taken = Counter()
    with tarfile.open(archive) as tar:
        for member in tar:
            folder = PurePosixPath(member.name).parent
            if member.isfile() and taken[folder] < 6:
                taken[folder] += 1
                path = root / "source" / "/".join(PurePosixPath(member.name).parts[-3:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
    return data.open_dataset("image_folder", source=root / "source", data_dir=root / "data")


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
def test_mstar_feeds_faster_than_it_is_trained_on(mstar):
    train = mstar.splits["train"]
    split = data.known_unknown("mstar/reference-0", mstar.classes)
    indices = data.select(train, classes=split.known)
    known = [mstar.classes.index(name) for name in split.known]
    labels = np.searchsorted(known, train.columns["label"][indices])
    chip = data.Chip(center_crop=64)
    stream = data.train_batches(train, indices, labels, chip=chip, batch_size=32, seed=0)
    for _ in range(60):
        next(stream)
    start = time.perf_counter()
    for _ in range(60):
        batch = next(stream)
    rate = 60 * 32 / (time.perf_counter() - start)
    assert set(batch["label"]) <= set(range(6))
    assert rate > 2000  # a step takes about 300 images a second; measured alone, over 30,000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, classes, counts",
    [("cifar10", 10, (50000, 10000)), ("cifar100_subset", 100, (25000, 5000))],
)
def test_cifar_folders(real_data, tmp_path, name, classes, counts):
    dataset = opened(real_data, tmp_path, name)
    assert len(dataset.classes) == classes
    train, test = dataset.splits["train"], dataset.splits["test"]
    assert (len(train), len(test)) == counts
    assert set(np.bincount(train.columns["label"])) == {counts[0] // classes}
    labels = train.columns["label"]
    everything = np.arange(len(train))
    stream = data.train_batches(train, everything, labels, chip=data.Chip(), batch_size=64, seed=0)
    batch = next(stream)
    assert batch["image"].shape == (64, 32, 32, 3) and batch["image"].dtype == np.uint8
    mean, std = data.image_statistics(train, everything, data.Chip())
    np.testing.assert_allclose(mean, [125, 123, 114] if classes == 10 else [129, 124, 112], atol=3)
    assert (np.abs(std - 64) < 9).all()
