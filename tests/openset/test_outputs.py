"""Means over groups of consecutive rows, against a loop."""

import numpy as np
import pytest

from jaxatr.openset import Outputs, mean_outputs, mean_over


@pytest.mark.parametrize("shape", [(), (3,)])
def test_means_are_those_of_a_loop(shape):
    rng, lengths = np.random.default_rng(0), np.array([1, 4, 2, 1])
    values = rng.normal(size=(8, *shape)).astype(np.float32)
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    expected = [piece.mean(axis=0, dtype=np.float64) for piece in pieces]
    np.testing.assert_allclose(mean_over(values, lengths), expected, rtol=1e-12)


def test_outputs_are_averaged_and_labels_kept():
    rng, lengths = np.random.default_rng(1), np.array([3, 2])
    logits, open_logits = rng.normal(size=(2, 5, 4)).astype(np.float32)
    found = mean_outputs(Outputs(logits, open_logits, np.array([2, 2, 2, -1, -1])), lengths)
    np.testing.assert_array_equal(found.labels, [2, -1])
    np.testing.assert_allclose(found.open_logits[1], open_logits[3:].mean(axis=0), rtol=1e-6)
    # The class of the largest mean logit is that of the largest mean log-probability.
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(
        found.logits.argmax(axis=1), mean_over(logs, lengths).argmax(axis=1)
    )
