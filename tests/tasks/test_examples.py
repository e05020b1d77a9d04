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


def test_truth_is_empty_where_the_data_says_none(small_config):
    test = Examples(small_config).parts["test"]
    assert test.truth(np.arange(2)) == (None, None)
