"""Temperature and sigmoid against another optimiser, and without anything to fit."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from jaxatr import openset
from jaxatr.openset import calibration


def smoothed(logits, labels, temperature):
    """Cross-entropy with smoothed targets, by plain loops."""
    n, total = len(logits), 0.0
    for row, label in zip(logits, labels, strict=True):
        log_shares = scipy.special.log_softmax(row / temperature)
        target = np.full(len(row), 1 / (n + 2) / len(row))
        target[label] += (n + 1) / (n + 2)
        total -= target @ log_shares
    return total / n


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
def test_temperature_is_the_least_cross_entropy(scale):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 60)
    logits = scale * (2 * np.eye(4)[labels] + rng.normal(size=(60, 4)))
    found = openset.fit_temperature(logits, labels)
    best = scipy.optimize.minimize_scalar(
        lambda log: smoothed(logits, labels, np.exp(log)), bounds=(-5, 5), method="bounded"
    )
    assert np.log(found) == pytest.approx(best.x, abs=1e-4)


def test_temperature_finds_the_scale_that_the_labels_were_drawn_at():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20000, 3))
    shares = scipy.special.softmax(logits, axis=1)
    labels = (shares.cumsum(axis=1) < rng.random((20000, 1))).sum(axis=1)
    assert openset.fit_temperature(5 * logits, labels) == pytest.approx(5, rel=0.05)


def test_temperature_by_hand():
    # One example, right, logits 1 and 0. Target 2/3 + 1/6 = 5/6: log odds log 5 = 1 / T.
    assert openset.fit_temperature([[1.0, 0.0]], [0]) == pytest.approx(1 / np.log(5))


def test_a_temperature_of_before_is_left_as_far_as_examples_support():
    rng = np.random.default_rng(4)
    logits, before = rng.normal(0, 3, (40, 4)), 1.5
    labels = np.array([rng.choice(4, p=row) for row in scipy.special.softmax(logits / 3, axis=1)])

    def loss(log):
        shares = scipy.special.log_softmax(logits / np.exp(log), axis=1)
        prior = ((log - np.log(before)) / 0.1) ** 2 / 2
        return prior - shares[np.arange(40), labels].sum()

    wanted = np.exp(scipy.optimize.minimize_scalar(loss, (0, 1)).x)
    found = openset.fit_temperature(logits, labels, before=before)
    assert found == pytest.approx(wanted, rel=1e-5) and found > before
    many = openset.fit_temperature(np.tile(logits, (500, 1)), np.tile(labels, 500), before=before)
    assert many == pytest.approx(openset.fit_temperature(logits, labels), rel=0.3) and many > found
    assert openset.fit_temperature([[2.0, 2.0]], [0], before=before) == before
    sure = openset.fit_temperature(20 * np.eye(4), range(4), before=before)  # all are right
    assert 1.4 < sure <= before


def test_temperature_without_anything_to_tell():
    assert openset.fit_temperature([[2.0, 2.0], [1.0, 1.0]], [0, 1]) == 1.0
    assert openset.fit_temperature([[2.0], [1.0]], [0, 0]) == 1.0
    assert openset.fit_temperature([[1.0, 0.0]], [1]) == pytest.approx(1e4, rel=1e-3)
    with pytest.raises(ValueError, match="logits: got shape"):
        openset.fit_temperature(np.zeros((0, 3)), np.zeros(0, int))


def test_sigmoid_is_the_least_weighted_loss():
    rng = np.random.default_rng(2)
    known = rng.random(200) < 0.7
    z = rng.normal(size=200) + 1.5 * known
    found = openset.fit_sigmoid(z, known)
    counts = known.sum(), (~known).sum()

    def loss(coefficients):
        total = 0.0
        for value, is_known in zip(z, known, strict=True):
            target = (counts[0] + 1) / (counts[0] + 2) if is_known else 1 / (counts[1] + 2)
            weight = 0.5 / (counts[0] if is_known else counts[1])
            share = scipy.special.expit(coefficients[0] * value + coefficients[1])
            total -= weight * (target * np.log(share) + (1 - target) * np.log(1 - share))
        return total

    best = scipy.optimize.minimize(loss, [1.0, 0.0], tol=1e-12).x
    np.testing.assert_allclose([found.slope, found.offset], best, rtol=1e-3, atol=1e-3)


def test_sigmoid_by_hand():
    # Known at 1, unknown at -1, one of each: targets 2/3 and 1/3, so log odds of log 2 at 1.
    found = openset.fit_sigmoid([1.0, -1.0], [True, False])
    assert found.slope == pytest.approx(np.log(2)) and found.offset == pytest.approx(0, abs=1e-8)
    np.testing.assert_allclose(found([1.0, -1.0]), [2 / 3, 1 / 3])


def test_sigmoid_does_not_depend_on_how_many_there_are_of_each():
    z, known = [2.0, 0.0, 1.0, -1.0], [True, True, False, False]
    one = openset.fit_sigmoid(np.tile(z, 100), np.tile(known, 100))
    many = openset.fit_sigmoid(
        [*np.tile(z, 100), *np.tile(z[:2], 900)], [*np.tile(known, 100), *np.ones(1800, bool)]
    )
    np.testing.assert_allclose([many.slope, many.offset], [one.slope, one.offset], atol=0.02)


def test_no_sigmoid_where_the_score_says_the_opposite():
    assert openset.fit_sigmoid([1.0, -1.0, 0.5], [False, True, True]) is None
    assert openset.fit_sigmoid([1.0, 2.0], [True, True]) is None
    assert openset.fit_sigmoid([1.0, 1.0], [True, False]) is None


def test_standing():
    known = [1.0, 2.0, 3.0, 4.0, 100.0]
    np.testing.assert_allclose(openset.standing_of([3.0, 4.4826], known), [0.0, 1.0])
    np.testing.assert_allclose(openset.standing_of([7.0], [5.0, 5.0, 5.0, 9.0]), 2 / np.sqrt(3))
    assert openset.standing_of([7.0], [5.0, 5.0]).tolist() == [2.0]
    with pytest.raises(ValueError, match="known_scores: got none"):
        openset.standing_of([1.0], [])


def test_equal_scores_have_the_unit_1():
    assert calibration.unit_of([0.1] * 3) == (pytest.approx(0.1), 1.0)
    assert calibration.standing_of([0.2], [0.1] * 3)[0] == pytest.approx(0.1)


def test_labels_that_are_no_class_are_refused():
    with pytest.raises(ValueError, match="labels"):
        openset.fit_temperature(np.eye(3), [0, 1, -1])


def test_the_caller_may_fill_the_arrays_anew():
    rng = np.random.default_rng(0)
    scores, classes = rng.normal(size=90), np.arange(90) % 3
    given = rng.normal(size=40), np.arange(40) % 3
    calibration = openset.fit_calibration(scores, classes, per_class=True)
    wanted = calibration.p_values(*given)
    scores[...], classes[...] = 9, 0
    np.testing.assert_array_equal(calibration.p_values(*given), wanted)
