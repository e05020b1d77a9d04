"""Recorded scores and the mistakes that follow from them."""

import numpy as np
import pytest

from jaxatr import openset


def arrays(n=50, k=3):
    rng = np.random.default_rng(0)
    return {
        "test_logits": np.float32(rng.normal(size=(n, k))),
        "test_open_logits": np.float32(rng.normal(size=(n, k))),
        "test_labels": rng.integers(-1, k, n),
    }


def test_a_score_is_its_array_or_follows_from_the_outputs():
    recorded = arrays() | {"test_score_energy": np.arange(50.0)}
    found = openset.recorded_scores(recorded, ["energy", "mls"])
    np.testing.assert_array_equal(found["energy"], np.arange(50.0))
    np.testing.assert_array_equal(found["mls"], recorded["test_logits"].max(axis=1))
    with pytest.raises(ValueError, match="'vim' has no array test_score_vim"):
        openset.recorded_scores(recorded, ["vim"])


@pytest.mark.parametrize("most", [4, 1000])
def test_mistakes_by_a_plain_search(most):
    rng = np.random.default_rng(1)
    labels, predicted = rng.integers(-1, 3, 60), rng.integers(0, 3, 60)
    score = rng.permutation(60) / 7
    expected = {
        "misclassified": [i for i in range(60) if labels[i] >= 0 and labels[i] != predicted[i]],
        "accepted": [i for i in range(60) if labels[i] < 0],
        "rejected": [i for i in range(60) if labels[i] >= 0],
    }
    found = openset.confident_mistakes(labels, predicted, score, most=most)
    for kind, rows in expected.items():
        worst_first = sorted(rows, key=lambda i: score[i] if kind == "rejected" else -score[i])
        assert found[kind].tolist() == worst_first[:most]


def test_no_mistakes_are_no_rows():
    labels = np.array([0, 1])
    found = openset.confident_mistakes(labels, labels, np.array([1.0, 2.0]))
    assert not len(found["misclassified"]) and not len(found["accepted"])
