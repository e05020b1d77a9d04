"""Reliability and risk-coverage against plain loops and hand-derived values, and edge cases."""

import itertools

import numpy as np
import pytest

from jaxatr import metrics


def test_reliability_against_loops():
    rng = np.random.default_rng(0)
    probabilities, weights = rng.random(500), rng.random(500)
    probabilities[:20] = np.arange(20) / 20  # on edges
    hits = rng.random(500) < probabilities
    found = metrics.reliability(probabilities, hits, bins=10, weights=weights)
    error = 0.0
    for number in range(10):
        low, high = number / 10, (number + 1) / 10
        rows = [
            i for i, p in enumerate(probabilities)
            if low < p <= high or (number == 0 and p == 0)
        ]  # fmt: skip
        total = sum(weights[i] for i in rows)
        probability = sum(weights[i] * probabilities[i] for i in rows) / total
        share = sum(weights[i] * hits[i] for i in rows) / total
        assert found.probability[number] == pytest.approx(probability)
        assert found.share[number] == pytest.approx(share)
        error += total / weights.sum() * abs(share - probability)
    assert found.error == pytest.approx(error)


def test_reliability_by_hand():
    found = metrics.reliability([1.0, 1.0, 0.0], [True, False, False], bins=2)
    np.testing.assert_allclose(found.weight, [1 / 3, 2 / 3])
    assert found.error == pytest.approx(2 / 3 * 0.5)
    assert metrics.expected_calibration_error([0.5], [True]) == 0.5
    assert np.isnan(metrics.reliability([0.9], [True], bins=2).share[0])


@pytest.mark.parametrize("bins", [10, 15, 25, 100])
def test_a_probability_on_an_edge_belongs_to_the_lower_bin(bins):
    for edge in range(1, bins + 1):  # 0.07 * 100 is 7.000000000000001
        weight = metrics.reliability([edge / bins], [True], bins=bins).weight
        assert np.flatnonzero(weight).tolist() == [edge - 1]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [1.0, np.nan], [1.0, np.inf], [2.0, -1.0]])
def test_weights_without_a_mean_are_refused(weights):
    with pytest.raises(ValueError, match="weights: got the minimum .* sum .*, wanted"):
        metrics.reliability([0.9, 0.8], [False, False], weights=weights)


def test_a_calibrated_forecast_has_a_small_error():
    rng = np.random.default_rng(1)
    probabilities = rng.random(100000)
    hits = rng.random(100000) < probabilities
    assert metrics.expected_calibration_error(probabilities, hits) < 0.01
    assert metrics.expected_calibration_error(probabilities**3, hits) > 0.1


@pytest.mark.parametrize(
    ("values", "got"), [([], "none"), ([0.5, 1.5], "1.5"), ([-0.1], "-0.1"), ([np.nan], "nan")]
)
def test_values_outside_0_and_1_are_refused(values, got):
    with pytest.raises(ValueError, match=f"probabilities: got {got}, wanted"):
        metrics.reliability(values, np.zeros(len(values), bool))
    with pytest.raises(ValueError, match="bins: got 0"):
        metrics.reliability([0.5], [True], bins=0)


def test_risk_is_the_mean_over_the_orders_of_the_tied():
    confidence = np.array([3.0, 1.0, 1.0, 1.0, 0.0])
    correct = np.array([True, False, True, False, True])
    curves = []
    for order in itertools.permutations(range(5)):
        if all(confidence[a] >= confidence[b] for a, b in itertools.pairwise(order)):
            wrong = ~correct[list(order)]
            curves.append(np.cumsum(wrong) / np.arange(1, 6))
    np.testing.assert_allclose(metrics.risk_coverage(confidence, correct), np.mean(curves, axis=0))
    assert metrics.aurc(confidence, correct) == pytest.approx(np.mean(curves))


def test_area_by_hand_and_its_ends():
    assert metrics.aurc([3.0, 2.0, 1.0], [True, True, False]) == pytest.approx(1 / 9)
    assert metrics.aurc([1.0, 2.0], [True, True]) == 0.0
    assert metrics.aurc([1.0, 2.0], [False, False]) == 1.0
    with pytest.raises(ValueError, match="confidence: got none, wanted"):
        metrics.aurc([], [])
    with pytest.raises(ValueError, match="confidence: 1 of 2 are NaN"):
        metrics.aurc([1.0, np.nan], [True, True])
