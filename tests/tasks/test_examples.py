"""The examples of a run."""

import numpy as np

from jaxatr.tasks.examples import Examples


def test_images_are_normalised_unless_they_are_not_to_be(small_config):
    config = small_config.copy_and_resolve_references()
    examples = Examples(config)
    train = examples.parts["train"]
    chips = train.chips(np.arange(len(train.indices))).astype(np.float32)
    normal = np.asarray(examples.normalize(chips))
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=1e-3)
    config.data.normalize = False
    raw = Examples(config)
    np.testing.assert_array_equal(raw.normalize(chips), chips)
    assert raw.record["normalization"] == {"mean": [0.0], "std": [1.0]}


def test_chips_of_added_classes_are_neither_tested_nor_validated_on(small_config, tmp_path):
    before = Examples(small_config)
    held, tested = (before.parts[name].chips(np.arange(3)) for name in ("validation", "test"))
    known = [before.split.known[label] for label in before.parts["validation"].labels[:3]]
    names = np.array([*known, *["new"] * 3])
    np.savez(tmp_path / "more.npz", images=np.concatenate([held, tested]), names=names)
    examples = Examples(small_config)
    examples.add_classes(str(tmp_path / "more.npz"))
    for part in ("validation", "test"):
        gone = set(before.fingerprints(part)[:3])
        left = examples.fingerprints(part)[: len(before.parts[part].indices) - 3]
        assert not gone & set(left)  # what follows are added chips that are held out


def test_truth_is_empty_where_the_data_says_none(small_config):
    test = Examples(small_config).parts["test"]
    assert test.truth(np.arange(2)) == (None, None)
