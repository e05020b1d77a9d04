"""Training examples as if not seen: folds, the shift, and the guarantee of few examples."""

import math

import numpy as np
import pytest

from jaxatr import openset
from jaxatr.openset import conformal
from jaxatr.openset.decision import Decision

CLASSES = 3
HEAD = openset.Head(np.eye(8, CLASSES), np.zeros(CLASSES))


def outputs(count, seed=0):
    rng, labels = np.random.default_rng(seed), np.arange(count) % CLASSES
    features = 3 * np.eye(CLASSES, 8)[labels] + rng.normal(size=(count, 8))
    logits = features @ HEAD.kernel
    return openset.Outputs(logits, logits, labels, {"features": features})


def test_the_shift_is_the_median_of_all_differences():
    rng = np.random.default_rng(0)
    seen, held_out = rng.normal(size=30), rng.normal(size=7) - 2
    shift = np.median([v - s for v in held_out for s in seen])
    np.testing.assert_allclose(openset.as_unseen(seen, held_out), seen + shift)
    # Logarithms of probabilities stay below 0: they are moved as minus log(-score).
    np.testing.assert_allclose(
        openset.as_unseen(-np.exp(-seen), -np.exp(-held_out), scale="log"), -np.exp(-seen - shift)
    )
    assert not openset.as_unseen([], [1.0]).size
    with pytest.raises(ValueError, match="wanted at least one"):
        openset.as_unseen([1.0], [])


def test_folds_have_equal_shares_of_every_class_and_keep_the_only_example_of_one():
    labels = np.array([0] * 10 + [1] * 7 + [2])
    fold = openset.folds_of(labels)
    assert np.bincount(fold[:10]).tolist() == [2] * 5
    assert sorted(np.bincount(fold[10:17])) == [1, 1, 1, 2, 2] and fold[17] == -1


@pytest.mark.parametrize("name", ["nearest", "mahalanobis", "softmax"])
def test_each_training_example_is_scored_by_a_fit_without_its_fold(name):
    training, validation, score = outputs(31), outputs(9, seed=1), openset.SCORES[name]
    decision = Decision(score, openset.fit_scores([score], training, HEAD).models)
    found, nearest = openset.out_of_fold(decision, training, HEAD, validation)
    fold = openset.folds_of(training.labels)
    for row, number in enumerate(fold):
        rest = training.select(fold != number) if score.fitted else training
        model = openset.fit_scores([score], rest, HEAD)
        expected = model.on(training.select(np.arange(31) == row))[name]
        assert found[row] == pytest.approx(float(expected[0]), rel=1e-4, abs=1e-6)
    np.testing.assert_array_equal(nearest, training.predicted)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 6, 30])
def test_the_guarantee_holds_whatever_the_training_examples_say(count):
    rng, draws = np.random.default_rng(count), 3000
    accepted, guarantee = 0, 0.0
    for _ in range(draws):
        held_out, seen = rng.normal(size=count), rng.normal(size=60) + rng.choice([-3, 0, 3])
        scores = np.concatenate([held_out, seen])  # without the shift
        made = openset.Calibration(scores, np.zeros(len(scores), int), unseen=count)
        new = rng.normal(size=1)
        accepted += (new >= made.threshold)[0]
        assert made.accepts(new) == (made.p_values(new) > 0.05 + 1e-9)
        guarantee = made.guarantee(1)
    rank = max(1, math.ceil(0.05 * (count + 1)))
    assert guarantee == pytest.approx(1 - rank / (count + 1))
    assert accepted / draws > guarantee - 4 * math.sqrt(guarantee * (1 - guarantee) / draws)


def test_few_validation_examples_and_the_training_examples_have_a_threshold():
    training, validation = outputs(60), outputs(6, seed=1)
    score = openset.SCORES["nearest"]
    bare = Decision(score, openset.fit_scores([score], training, HEAD).models)
    seen = openset.with_training(bare, training, HEAD, validation)
    made = openset.calibrate(bare, validation, tpr=0.95, seen=seen)
    held_out, _ = bare.score_of(validation)
    pooled = np.sort(np.concatenate([held_out, seen[0]]))
    assert made.calibration.threshold == min(pooled[2], held_out.min())  # floor(.05 * 67) = 3
    assert made.calibration.basis == "6 validation examples and 60 others as if not seen"
    np.testing.assert_allclose(made.guarantees(CLASSES), 6 / 7)
    again = openset.from_arrays(score, openset.to_arrays(made))
    assert again.calibration.threshold == made.calibration.threshold
    np.testing.assert_allclose(again.guarantees(CLASSES), 6 / 7)
    per_class = made.calibration._replace(per_class=True)
    assert per_class.guarantee(CLASSES) is None
    assert np.isfinite(per_class.thresholds(CLASSES)).all()
    assert made.calibration._replace(tpr=1.0).guarantee(CLASSES) == 1


def test_classes_with_too_few_examples_have_the_common_threshold_and_no_guarantee():
    scores, nearest = np.arange(30.0), np.repeat([0, 1], [25, 5])
    made = openset.fit_calibration(scores, nearest, tpr=0.9, per_class=True)
    assert made.thresholds(3).tolist() == [1.0, 2.0, 2.0]
    np.testing.assert_allclose(made.guarantees(3), [1 - 2 / 26, np.nan, np.nan])
    found = made.p_values(np.array([1.5, 2.0]), np.array([1, 1]))
    np.testing.assert_allclose(found, [3 / 31, 4 / 31])  # among all 30


def test_it_agrees_with_nonconform():
    nonconform = pytest.importorskip("nonconform")

    class Nearest:
        """Distance to the nearest example, as a detector of that library."""

        def __init__(self):
            self.rows = np.zeros((0, 8))

        def fit(self, x, y=None):
            self.rows = np.array(x)
            return self

        def decision_function(self, x):
            return np.linalg.norm(np.asarray(x)[:, None] - self.rows, axis=2).min(axis=1)

        def get_params(self, deep=True):
            return {}

        def set_params(self, **params):
            return self

    training, new = outputs(40), outputs(25, seed=2)
    unit = [
        one.more["features"] / np.linalg.norm(one.more["features"], axis=1, keepdims=True)
        for one in (training, new)
    ]
    strategy = nonconform.CrossValidation(k=5, mode="single_model", shuffle=False)
    _, calibration = strategy.fit_calibrate(unit[0], Nearest(), seed=0)
    score = openset.SCORES["nearest"]
    decision = Decision(score, openset.fit_scores([score], training, HEAD).models)
    fold = np.repeat(np.arange(5), 8)  # consecutive, as there
    seen, _ = openset.out_of_fold(decision, training, HEAD, new, fold)
    np.testing.assert_allclose(seen, -np.asarray(calibration), rtol=1e-4, atol=1e-6)
    theirs = nonconform.Empirical().compute_p_values(-decision.score_of(new)[0], -seen)
    ours = conformal.conformal_p_values(seen, decision.score_of(new)[0])
    np.testing.assert_allclose(ours, theirs)
