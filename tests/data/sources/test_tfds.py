"""A small public data set, registered with TFDS and encoded as TFDS does it."""

import copy
import io
import pickle
import sys
import threading

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from jaxatr import data
from jaxatr.data import records
from jaxatr.data.sources import _tfds

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "png", compress_level=0)  # the same bytes with every zlib
    file.seek(0)
    return file


class JaxatrProbe(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.2.3")
    code_path = None

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["beaver", "shark", "seal"]),
            "coarse_label": tfds.features.ClassLabel(names=["fish", "mammal"]),
            "id": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), disable_shuffling=True
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(0, 4), "test": self._generate_examples(4, 6)}

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            image = IMAGES[i, :, :, 0] if i == 1 else IMAGES[i]  # one of them is gray
            coarse = int(i % 3 != 1)
            yield i, {"image": png(image), "label": i % 3, "coarse_label": coarse, "id": f"x{i}"}


class JaxatrNoImages(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    code_path = None

    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        raise NotImplementedError

    def _generate_examples(self):
        raise NotImplementedError


@pytest.fixture
def prepared(data_dir):
    with records.quiet():
        JaxatrProbe(data_dir=data_dir, file_format="array_record").download_and_prepare()
    return data_dir


def test_a_prepared_set_opens_by_its_name(prepared):
    dataset = data.open_dataset("jaxatr_probe", data_dir=prepared)
    assert (dataset.name, dataset.version) == ("jaxatr_probe", "1.2.3")
    assert dataset.classes == ("beaver", "shark", "seal")
    assert dataset.coarse_classes == ("fish", "mammal") and dataset.fine_to_coarse == (1, 0, 1)
    train, test = dataset.splits["train"], dataset.splits["test"]
    assert (len(train), len(test), train.dtype) == (4, 2, np.uint8)
    assert train.columns["label"].tolist() == [0, 1, 2, 0]
    assert train.columns["coarse"].tolist() == [1, 0, 1, 1]
    assert sorted([*train.columns["id"], *test.columns["id"]]) == list(range(6))
    for index in (0, 2, 3):
        np.testing.assert_array_equal(train[index]["image"], IMAGES[index])
    np.testing.assert_array_equal(train[1]["image"], np.repeat(IMAGES[1, :, :, :1], 3, axis=2))
    assert [train.columns[name].tolist() for name in ("height", "width", "channels")] == [
        [5] * 4,
        [4] * 4,
        [3] * 4,
    ]
    np.testing.assert_array_equal(test[1]["image"], IMAGES[5])


def test_it_feeds_batches_and_keeps_its_fingerprint(prepared):
    first = data.open_dataset("jaxatr_probe", data_dir=prepared)
    second = data.open_dataset("jaxatr_probe", data_dir=prepared)
    recorded = "b973fdbc5ea0f11b82d67622dbf3de4c3b35b12c0e128914472a323f45561dbf"
    assert first.fingerprint == second.fingerprint == recorded
    split = first.splits["train"]
    labels = split.columns["label"]
    batches = data.eval_batches(split, np.arange(4), labels, chip=data.Chip(), batch_size=4)
    assert next(iter(batches))["image"].shape == (4, 5, 4, 3)


def test_nothing_is_downloaded_unasked(data_dir):
    with pytest.raises(ValueError, match="jaxatr prepare cifar10 --data_dir=.*data"):
        data.open_dataset("cifar10", data_dir=data_dir)


def test_tensorflow_is_asked_for_before_a_download(data_dir, monkeypatch):
    monkeypatch.setattr(_tfds.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs TensorFlow.*pip install 'jaxatr\[tfds\]'"):
        data.prepare("cifar10", data_dir=data_dir)


def test_prepare_prepares(data_dir, monkeypatch):
    monkeypatch.setattr(_tfds.importlib.util, "find_spec", lambda name: name)
    assert len(data.prepare("jaxatr_probe", data_dir=data_dir).splits["train"]) == 4


def test_a_set_without_labelled_images_is_refused(data_dir):
    with pytest.raises(ValueError, match="its features are text"):
        data.open_dataset("jaxatr_no_images", data_dir=data_dir)


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_a_set_is_read_in_other_processes(prepared, copied):
    dataset = data.open_dataset("jaxatr_probe", data_dir=prepared)
    train, again = dataset.splits["train"], copied(dataset).splits["train"]
    assert (again.name, again.classes, again.dtype) == (train.name, train.classes, train.dtype)
    for number in range(len(train)):
        assert again[number].keys() == train[number].keys()
        for name, value in train[number].items():
            np.testing.assert_array_equal(again[number][name], value)


def test_threads_that_prepare_at_once_leave_the_output_as_it_was():
    output, entered, left = sys.stdout, threading.Event(), threading.Event()

    def prepare():
        with records.quiet():
            entered.set()
            left.wait()

    thread = threading.Thread(target=prepare)
    with records.quiet():
        thread.start()
        entered.wait(0.3)
    left.set()
    thread.join()
    assert sys.stdout is output
