"""Conformal acceptance: its guarantee by simulation, values by hand, too few examples."""

import math

import numpy as np
import pytest

from jaxatr import openset


def test_values_by_hand():
    scores = np.arange(1.0, 20.0)  # 19: the first size at which 95 % has a threshold
    assert openset.conformal_threshold(scores, tpr=0.95) == 1.0
    assert openset.conformal_threshold(scores, tpr=0.9) == 2.0
    assert openset.conformal_threshold(np.arange(1.0, 100.0), tpr=0.95) == 5.0
    found = openset.conformal_p_values(scores, [0.5, 1.0, 1.5, 19.0, 99.0])
    np.testing.assert_allclose(found, [1 / 20, 2 / 20, 2 / 20, 1, 1])


@pytest.mark.parametrize("tpr", [0.5, 0.8, 0.9, 0.95])
def test_needed_examples_are_the_fewest_with_a_threshold(tpr):
    needed = openset.examples_needed(tpr)
    assert np.isfinite(openset.conformal_threshold(np.zeros(needed), tpr=tpr))
    assert openset.conformal_threshold(np.zeros(needed - 1), tpr=tpr) == -math.inf


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("n", "tpr"), [(19, 0.95), (30, 0.9), (7, 0.7), (50, 0.95)])
def test_the_promise_holds_on_exchangeable_draws(n, tpr, tied):
    rng, draws = np.random.default_rng(n), 4000
    scores = rng.normal(size=(draws, n + 1))
    if tied:
        scores = np.round(scores)
    thresholds = [openset.conformal_threshold(row[:n], tpr=tpr) for row in scores]
    rejected = np.mean(scores[:, n] < thresholds)
    level = math.floor(round((1 - tpr) * (n + 1), 9)) / (n + 1)
    error = 4 * math.sqrt(level * (1 - level) / draws)
    assert rejected <= level + error
    if not tied:
        assert rejected >= level - error  # and not far below: the guarantee is tight


def test_the_threshold_and_the_p_value_are_one_test():
    rng = np.random.default_rng(0)
    for n in range(0, 60):
        known, scores = rng.integers(0, 9, n), rng.integers(-1, 10, 40)
        for tpr in (0.5, 0.8, 0.95, 1.0):
            accepted = scores >= openset.conformal_threshold(known, tpr=tpr)
            p_values = openset.conformal_p_values(known, scores)
            np.testing.assert_array_equal(accepted, p_values > round(1 - tpr, 9) + 1e-12)


def test_each_class_has_its_own_promise():
    rng, draws, rejected = np.random.default_rng(1), 2000, np.zeros((2, 2))
    for _ in range(draws):
        groups = rng.integers(0, 2, 81)
        scores = rng.normal(size=81) * (1 + 3 * groups)  # one class has the low scores
        known, taken = scores[:80], groups[:80]
        found = openset.class_thresholds(known, taken, 2, tpr=0.9)
        together = openset.conformal_threshold(known, tpr=0.9)
        rejected[0, groups[80]] += scores[80] < found[groups[80]]
        rejected[1, groups[80]] += scores[80] < together
    shares = rejected / (draws / 2)
    assert np.all(shares[0] < 0.11) and np.all(shares[0] > 0.06)
    assert shares[1, 1] > 0.14  # a common threshold violates it for one class


def test_a_class_with_few_examples_rejects_nothing():
    found = openset.class_thresholds(np.arange(30.0), np.repeat([0, 1], [25, 5]), 3, tpr=0.9)
    assert found.tolist() == [1.0, -math.inf, -math.inf]


@pytest.mark.parametrize("tpr", [0.0, 1.5, -1.0])
def test_a_level_out_of_range_is_refused(tpr):
    with pytest.raises(ValueError, match="tpr: got"):
        openset.conformal_threshold([1.0], tpr=tpr)


def test_a_score_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="1 of 2 are NaN"):
        openset.conformal_threshold([1.0, math.nan])
    with pytest.raises(ValueError, match="never rejects anything"):
        openset.examples_needed(1.0)
