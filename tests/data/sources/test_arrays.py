"""Arrays in memory as a data set, and a run that is trained and measured on them."""

import numpy as np
import pytest

import jaxatr
from jaxatr import data, files
from jaxatr.data.sources import arrays


def images_of(count, classes=3, seed=0):
    """Draws chips whose brightness is their class, with noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    images = 60 + 60 * labels[:, None, None] + rng.normal(0, 5, (count, 8, 8))
    return images.astype(np.uint8), np.array(["dark", "gray", "light"])[labels]


def test_the_file_holds_the_arrays_as_they_are(tmp_path):
    images, labels = images_of(30)
    arrays.write(tmp_path / "a.npz", (images, labels), images_of(6, seed=1))
    found = data.open_dataset("arrays", source=tmp_path / "a.npz", data_dir=tmp_path / "d")
    assert found.classes == ("dark", "gray", "light")
    train, test = found.splits["train"], found.splits["test"]
    assert (len(train.columns["label"]), len(test.columns["label"])) == (30, 6)
    np.testing.assert_array_equal(train.image(4)[..., 0], images[4])
    assert [found.classes[n] for n in train.columns["label"]] == labels.tolist()


def test_the_same_bytes_in_another_shape_are_another_set(tmp_path):
    images, labels = images_of(30)
    for shape in ((30, 8, 8), (30, 4, 16), (30, 4, 8, 2)):
        arrays.write(tmp_path / "a.npz", (images.reshape(shape), labels))
        found = data.open_dataset("arrays", source=tmp_path / "a.npz", data_dir=tmp_path / "d")
        assert found.splits["train"].image(0).shape == (*shape, 1)[1:4]


def test_without_a_test_a_share_of_each_class_is_drawn(tmp_path):
    arrays.write(tmp_path / "a.npz", images_of(30))
    found = data.open_dataset("arrays", source=tmp_path / "a.npz", data_dir=tmp_path / "d")
    labels = found.splits["test"].columns["label"]
    assert np.bincount(labels).tolist() == [2, 2, 2]


def test_a_class_has_one_name_in_every_form_of_unicode(tmp_path):
    images, labels = images_of(30)
    train = np.where(labels == "gray", "\u0160koda", labels)
    test = np.where(labels == "gray", " S\u030ckoda ", labels)
    arrays.write(tmp_path / "a.npz", (images, train), (images, test))
    found = data.open_dataset("arrays", source=tmp_path / "a.npz", data_dir=tmp_path / "d")
    assert found.classes == ("dark", "light", "\u0160koda")
    np.testing.assert_array_equal(*(found.splits[part].columns["label"] for part in found.splits))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["Å koda".encode(), b"tank"], ["Å koda", "tank"]),
        (np.array(["tank", b"car"], object), ["tank", "car"]),
        (np.array([-1, 10]), ["-1", "10"]),
        (np.array([True, False]), ["True", "False"]),
        (np.array([0.1, 2.0], np.float32), ["0.1", "2.0"]),
    ],
)
def test_labels_of_any_type_are_names(labels, names):
    assert arrays.checked(np.zeros((2, 8, 8), np.uint8), labels)[1].tolist() == names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((np.zeros((3, 8, 8), np.float64), ["a", "b", "c"]), "float64, wanted"),
        ((np.zeros((3, 8), np.uint8), ["a", "b", "c"]), r"shape \[3, 8\]"),
        ((np.zeros((3, 8, 8), np.uint8), ["a", "b"]), "got 3 images and labels of shape"),
        ((np.full((2, 8, 8), np.nan, np.float32), ["a", "b"]), "not finite"),
        ((np.zeros((2, 8, 8), np.uint8), ["a", " "]), "label 1 is ' ', wanted the name of a class"),
        ((np.zeros((2, 8, 8), np.uint8), [0.0, np.nan]), "label 1 is 'nan', wanted the name"),
        (
            (np.zeros((2, 8, 8), np.uint8), np.array(["a", None], object)),
            "label 1 is 'None', wanted the name",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arrays.write(tmp_path / "a.npz", given)
    assert not (tmp_path / "a.npz").exists()


def test_a_file_in_use_keeps_its_arrays(tmp_path):
    path, (images, labels) = tmp_path / "a.npz", images_of(12)
    arrays.write(path, (images + 1, labels))
    arrays.write(path, (images, labels))  # it is not in use
    before = path.read_bytes()
    arrays.write(path, (list(images), labels.tolist()), keep=True)
    for others in ((images + 1, labels), (images, labels[::-1]), (images.astype("f4"), labels)):
        with pytest.raises(ValueError, match="has a run on other images or labels"):
            arrays.write(path, others, keep=True)
    with pytest.raises(ValueError, match="has a run on other images or labels"):
        arrays.write(path, (images, labels), images_of(6), keep=True)
    assert path.read_bytes() == before


def test_the_arrays_of_a_training_that_another_process_has_begun_stay(tmp_path):
    path = tmp_path / "run" / "data.npz"
    arrays.write(path, images_of(12))  # there is no config.json yet
    before = path.read_bytes()
    with files.locked(path.parent / ".training.lock"):
        with pytest.raises(ValueError, match="another process is training in this folder"):
            jaxatr.train("cbc:folder", path.parent, data=images_of(12, seed=1))
    assert path.read_bytes() == before


@pytest.mark.slow  # to train and measure a run of its own
def test_a_run_is_trained_and_measured_on_arrays(tmp_path):
    fields = {"model.backbone": "jaxatr_test_networks:Small", "open_set.split": "known:dark,gray"}
    fields |= {"train.steps": 4, "train.batch_size": 8, "open_set.score": "mls", "data.size": 0}
    fields |= {"data.data_dir": str(tmp_path / "prepared")}
    with pytest.raises(ValueError, match="train.step: .*mean 'train"):
        jaxatr.train("cbc:folder", tmp_path / "run", data=images_of(48), **{"train.step": 4})
    given = {"data": images_of(48), "progress": False}
    workdir = jaxatr.train("cbc:folder", tmp_path / "run", **given, **fields)
    assert workdir == tmp_path / "run"
    with pytest.raises(ValueError, match="run has a run on other images or labels"):
        jaxatr.train("cbc:folder", workdir, **given | {"data": images_of(48, seed=1)}, **fields)
    own = jaxatr.evaluate(workdir)
    assert own["known"] == ["dark", "gray"] and own["unknown"] == ["light"]
    before = (workdir / "evaluation.json").read_bytes()
    images, labels = images_of(30, seed=2)
    measured = jaxatr.evaluate(workdir, data=(images, np.where(labels == "light", "new", labels)))
    recogniser = jaxatr.load(workdir)
    named = [one.nearest for one in recogniser.predict(images[..., None])]
    right = np.mean(np.array(named)[labels != "light"] == labels[labels != "light"])
    assert measured["decision"]["test"]["closed_accuracy"] == pytest.approx(right)
    assert "auroc" in measured["decision"]["test"]
    assert (workdir / "evaluation.json").read_bytes() == before
