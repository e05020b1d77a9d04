"""A decision: its threshold, its probabilities, its gallery, and its file."""

import io
from typing import NamedTuple

import numpy as np
import pytest
import scipy.special

from jaxatr import openset
from jaxatr.openset import Answer, Decision, Outputs, Score, Sigmoid


class Shift(NamedTuple):
    amount: np.ndarray
    unused: np.ndarray | None


SHIFTED = Score(
    "shifted",
    "Shifted",
    lambda model, out: out.logits.max(axis=1) + model.amount,
    lambda out, head: Shift(np.float64(1.0), None),
    model=Shift,
)
GALLERY = Score(
    "gallery",
    "Gallery",
    lambda _, out: Answer(out.logits.max(axis=1), out.logits.argmin(axis=1)),
    names_class=True,
)


def outputs(n=100, k=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    logits = np.float32(rng.normal(size=(n, k)) + 3 * np.eye(k)[labels])
    return Outputs(logits, logits - 1, labels)


def shifted(**options):
    decision = Decision(SHIFTED, {"shifted": Shift(np.float64(1.0), None)})
    return openset.calibrate(decision, outputs(), **{"tpr": 0.9, **options})


@pytest.mark.parametrize("sigmoid", [None, Sigmoid(2.0, 0.5)])
def test_a_score_that_is_no_number_is_rejected_alone(sigmoid):
    decision, further = shifted(per_class=True, sigmoid=sigmoid), outputs(5, seed=1)
    broken = further.logits.copy()
    broken[2] = np.nan
    wanted = decision(further)
    found = decision(further._replace(logits=broken, open_logits=broken))
    assert np.isnan(found.scores[2]) and not found.accepted[2]
    assert 0 < found.p_values[2] == found.p_values.min() < 0.1
    assert found.known_probabilities[2] == (found.p_values[2] if sigmoid is None else 0)
    others = np.arange(5) != 2
    for name in ("nearest", "accepted", "scores", "p_values", "known_probabilities"):
        np.testing.assert_array_equal(getattr(found, name)[others], getattr(wanted, name)[others])


def test_it_decides_as_the_conformal_test_does():
    decision, further = shifted(), outputs(40, seed=1)
    answers = decision(further)
    known = np.float64(outputs().logits.max(axis=1)) + 1
    scores = np.float64(further.logits.max(axis=1)) + 1
    np.testing.assert_allclose(answers.scores, scores)
    threshold = openset.conformal_threshold(known, tpr=0.9)
    np.testing.assert_array_equal(answers.thresholds, np.full(40, threshold))
    np.testing.assert_array_equal(answers.accepted, scores >= threshold)
    np.testing.assert_allclose(answers.p_values, openset.conformal_p_values(known, scores))
    assert decision.probability_is == "p-value"
    np.testing.assert_array_equal(answers.known_probabilities, answers.p_values)
    np.testing.assert_array_equal(answers.accepted, answers.p_values > 0.1 + 1e-12)
    temperature = openset.fit_temperature(outputs().logits, outputs().labels)
    expected = scipy.special.softmax(np.float64(further.logits) / temperature, axis=1)
    np.testing.assert_allclose(answers.probabilities, expected)


def test_its_own_examples_keep_the_promise():
    for tpr in (0.7, 0.9, 0.95):
        accepted = shifted(tpr=tpr)(outputs()).accepted
        assert np.mean(accepted) >= tpr


def test_a_sigmoid_makes_it_a_probability():
    decision = shifted(sigmoid=Sigmoid(2.0, 1.0))
    answers = decision(outputs(9, seed=2))
    standing = openset.standing_of(answers.scores, decision.calibration.scores)
    np.testing.assert_allclose(answers.known_probabilities, scipy.special.expit(2 * standing + 1))
    assert decision.probability_is == "calibrated"
    order = np.argsort(answers.scores)
    assert np.all(np.diff(answers.known_probabilities[order]) >= 0)


def test_each_class_has_a_threshold_of_its_own():
    decision, further = shifted(per_class=True), outputs(60, seed=3)
    answers = decision(further)
    expected = openset.class_thresholds(
        decision.calibration.scores, decision.calibration.nearest, 3, tpr=0.9
    )
    assert len(set(expected)) == 3
    np.testing.assert_array_equal(answers.thresholds, expected[answers.nearest])
    np.testing.assert_array_equal(answers.accepted, answers.p_values > 0.1 + 1e-12)


def test_the_class_may_come_from_the_gallery():
    further = outputs(5, seed=4)
    for gallery, expected in ((False, further.logits.argmax(1)), (True, further.logits.argmin(1))):
        decision = openset.calibrate(Decision(GALLERY, {}, gallery), outputs(), tpr=0.9)
        np.testing.assert_array_equal(decision(further).nearest, expected)


def test_the_rule_is_that_of_the_paper():
    further = outputs(50, seed=5)
    answers = openset.gamma_rule(0.9)(further)
    decided = openset.decide(further.logits, further.open_logits, gamma=0.9, unknown=-1)
    np.testing.assert_array_equal(np.where(answers.accepted, answers.nearest, -1), decided)
    score = openset.cbc_score(further.logits, further.open_logits)
    np.testing.assert_allclose(answers.known_probabilities, scipy.special.expit(score), rtol=1e-6)
    assert answers.p_values is None and openset.gamma_rule(0.9).probability_is == "score"
    assert not openset.gamma_rule(1.0)(further).accepted.any()
    assert openset.gamma_rule(0.0)(further).accepted.all()
    with pytest.raises(ValueError, match="gamma: got 1.5"):
        openset.gamma_rule(1.5)


def test_a_threshold_that_is_given_counts():
    decision, further = shifted(), outputs(30, seed=6)
    answers = decision.at(4.5)(further)
    np.testing.assert_array_equal(answers.accepted, answers.scores >= 4.5)
    assert np.all(answers.thresholds == 4.5) and answers.p_values is not None


def test_too_few_examples_have_their_lowest_as_the_threshold():
    few = openset.calibrate(Decision(GALLERY, {}), outputs(5), tpr=0.95)
    scores, _ = few.score_of(outputs(5))
    answers = few(outputs(20, seed=7))
    np.testing.assert_array_equal(answers.thresholds, scores.min())
    np.testing.assert_allclose(answers.guarantees, 5 / 6)
    assert np.isnan(few.at(0.5)(outputs(20)).guarantees).all()


def test_a_file_of_earlier_versions_decides_as_before():
    arrays = openset.to_arrays(openset.calibrate(Decision(GALLERY, {}), outputs(5), tpr=0.95))
    del arrays["calibration.unseen"]
    answers = openset.from_arrays(GALLERY, arrays)(outputs(20, seed=7))
    assert np.all(answers.thresholds == -np.inf) and np.all(answers.guarantees == 1)


def test_values_that_cannot_be_calibrated_or_decided_are_refused():
    bare = Decision(GALLERY, {})
    with pytest.raises(ValueError, match="gallery: there is no threshold"):
        bare(outputs())
    unknown = outputs()._replace(labels=np.full(100, openset.UNKNOWN))
    with pytest.raises(ValueError, match="wanted known examples"):
        openset.calibrate(bare, unknown, tpr=0.9)
    with pytest.raises(ValueError, match="tpr: got 2"):
        openset.calibrate(bare, outputs(), tpr=2.0)


@pytest.mark.parametrize(
    "decision",
    [
        shifted(sigmoid=Sigmoid(2.0, 1.0), per_class=True),
        shifted(),
        shifted().at(2.5),
        openset.gamma_rule(0.7),
        openset.calibrate(Decision(GALLERY, {}, gallery=True), outputs(), tpr=0.9),
    ],
)
def test_a_file_keeps_it_without_pickle(decision):
    file = io.BytesIO()
    np.savez(file, **openset.to_arrays(decision))
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        again = openset.from_arrays(decision.score, dict(arrays))
    assert type(again.models.get("shifted")) is type(decision.models.get("shifted"))
    further = outputs(20, seed=8)
    for one, other in zip(again(further), decision(further), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.probability_is == decision.probability_is


def test_a_file_of_another_kind_is_refused():
    arrays = openset.to_arrays(shifted())
    with pytest.raises(ValueError, match="got a model fitted for shifted, wanted gallery"):
        openset.from_arrays(GALLERY, arrays)
    arrays["model.shifted"] = np.array(["other"])
    with pytest.raises(ValueError, match="got a model of .'other'"):
        openset.from_arrays(SHIFTED, arrays)
    with pytest.raises(ValueError, match="shifted: its fit returned a dict"):
        openset.to_arrays(Decision(SHIFTED, {"shifted": {"amount": 1}}))
    with pytest.raises(ValueError, match="wanted an array of numbers"):
        openset.to_arrays(Decision(SHIFTED, {"shifted": Shift(object(), None)}))
