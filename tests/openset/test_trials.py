"""Comparison of scores on left-out known classes, against loops and by hand."""

from typing import NamedTuple

import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset import Head, Outputs, Score


class Means(NamedTuple):
    means: np.ndarray


CLOSE = Score(
    "close",
    "Close",
    lambda model, out: (
        -np.linalg.norm(out.more["features"][:, None] - model.means, axis=-1).min(axis=1)
    ),
    lambda out, head: Means(
        np.stack(
            [out.more["features"][out.labels == c].mean(axis=0) for c in range(out.logits.shape[1])]
        )
    ),
    needs=("features",),
    model=Means,
)
LAST = Score("last", "Last", lambda _, out: out.logits[:, -1])
FLAT = Score("flat", "Flat", lambda _, out: np.zeros(len(out.labels)))


def outputs(n, k=4, seed=0):
    """Features around k corners; the logits are half noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    features = 6 * np.eye(k)[labels] + rng.normal(size=(n, k))
    logits = np.eye(k)[labels] + rng.normal(size=(n, k))
    return Outputs(logits, logits + 1, labels, {"features": features})


def trials(classes=("a", "b", "c", "d"), **changed):
    k = len(classes)
    training, validation = outputs(40, k, 1), outputs(28, k, 2)
    head = Head(np.arange(3.0 * k).reshape(3, k), np.arange(k))
    given = {"training": training, "validation": validation, "head": head} | changed
    return given, list(openset.leave_classes_out(**given, classes=tuple(classes)))


def test_a_class_is_gone_from_everything_but_the_network():
    given, found = trials()
    assert [trial.name for trial in found] == ["a", "b", "c", "d"]
    for c, trial in enumerate(found):
        kept = [other for other in range(4) if other != c]
        before = given["training"]
        rows = before.labels != c
        np.testing.assert_array_equal(trial.training.logits, before.logits[rows][:, kept])
        np.testing.assert_array_equal(trial.training.open_logits, before.open_logits[rows][:, kept])
        np.testing.assert_array_equal(
            [kept[label] for label in trial.training.labels], before.labels[rows]
        )
        after = given["validation"]
        assert len(trial.validation.labels) == 28
        expected = [kept.index(x) if x != c else openset.UNKNOWN for x in after.labels]
        assert trial.validation.labels.tolist() == expected
        np.testing.assert_array_equal(trial.head.kernel, given["head"].kernel[:, kept])
        np.testing.assert_array_equal(trial.head.bias, given["head"].bias[kept])


def test_many_classes_are_left_out_in_groups():
    _, found = trials(tuple("abcdefghijkl"))
    assert len(found) == openset.trials.MOST_TRIALS
    names = [name for trial in found for name in trial.name.split(", ")]
    assert names == list("abcdefghijkl") and found[0].head.kernel.shape[1] == 10


def test_two_classes_or_none_to_validate_on_make_no_trial():
    assert not trials(("a", "b"))[1]
    one_class = outputs(28).select(np.arange(28) % 4 == 1)
    assert not trials(validation=one_class)[1]
    two_classes = outputs(28).select(np.arange(28) % 4 < 2)
    assert [trial.name for trial in trials(validation=two_classes)[1]] == ["a", "b"]


def test_areas_are_those_of_a_loop():
    given, found = trials()
    row = openset.compare([CLOSE], found)["close"]
    for c, name in enumerate("abcd"):
        training, validation = given["training"], given["validation"]
        features, means = training.more["features"], []
        for other in range(4):
            if other != c:
                means.append(features[training.labels == other].mean(axis=0))
        score = [-min(np.linalg.norm(f - m) for m in means) for f in validation.more["features"]]
        score, stand_in = np.array(score), validation.labels == c
        assert row.areas[name] == pytest.approx(metrics.auroc(score[~stand_in], score[stand_in]))
    assert row.mean == pytest.approx(np.mean(list(row.areas.values())))
    assert row.known.sum() == 3 * 28 and len(row.standing) == 4 * 28


def test_the_best_by_known_classes_is_chosen():
    _, found = trials()
    compared = openset.compare([FLAT, LAST, CLOSE], found)
    assert compared["flat"].mean == 0.5 and compared["close"].mean > 0.95
    assert openset.best_of(compared) == "close"
    assert openset.best_of(openset.compare([FLAT, FLAT], found)) == "flat"


def test_a_score_that_cannot_be_computed_is_refused_and_named():
    def refuse(out, head):
        raise ValueError("wanted more")

    broken = Score("broken", "B", lambda model, out: out.logits[:, 0], refuse)
    infinite = Score("infinite", "I", lambda _, out: np.full(len(out.labels), np.inf))
    compared = openset.compare([broken, infinite, FLAT], trials()[1])
    assert "without a: broken: wanted more" in compared["broken"].refused
    assert "28 values are not finite" in compared["infinite"].refused
    assert openset.best_of(compared) == "flat" and np.isnan(compared["broken"].mean)
    assert openset.best_of(openset.compare([FLAT], [])) is None
