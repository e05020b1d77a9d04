"""The test of a drift: its distance and p-value, and the rate of its false alarms."""

import itertools

import numpy as np
import pytest

from jaxatr import metrics


def distance(one, other):
    """Kolmogorov and Smirnov's distance by its definition."""
    points = np.concatenate([one, other])
    return max(abs(np.mean(one <= x) - np.mean(other <= x)) for x in points)


def test_distance_and_p_value_are_those_of_all_divisions():
    values = np.random.default_rng(0).normal(size=9)
    seen, reference = values[:4] + 1.5, values[4:]
    (found,) = metrics.shifts({"a": reference}, {"a": seen})
    assert found.distance == pytest.approx(distance(seen, reference))
    every = np.concatenate([seen, reference])
    divisions = [
        distance(every[list(rows)], np.delete(every, list(rows)))
        for rows in itertools.combinations(range(9), 4)
    ]
    assert found.p_value == pytest.approx(np.mean(np.array(divisions) >= found.distance - 1e-12))


def test_p_values_are_corrected_for_the_number_of_statistics():
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=50), rng.normal(size=50) + 0.7
    (alone,) = metrics.shifts({"a": one}, {"a": other})
    both = metrics.shifts({"a": one, "b": one}, {"a": other, "b": one})
    assert both[0].p_value == pytest.approx(2 * alone.p_value)
    assert both[1].p_value == 1 and both[1].distance == 0  # the same values
    assert alone.higher and not metrics.shifts({"a": other}, {"a": one})[0].higher


def test_false_alarms_are_no_more_frequent_than_stated():
    rng, alarms = np.random.default_rng(2), 0
    for _ in range(300):
        reference, seen = rng.normal(size=(3, 60)), rng.normal(size=(3, 40))
        reference[1:] += reference[0]  # statistics of the same chips are not independent
        seen[1:] += seen[0]
        found = metrics.shifts(dict(enumerate_names(reference)), dict(enumerate_names(seen)))
        alarms += any(one.found(0.1) for one in found)
    assert 0 < alarms <= 300 * 0.1 + 3 * np.sqrt(300 * 0.1 * 0.9)


def enumerate_names(rows):
    return ((f"statistic {number}", row) for number, row in enumerate(rows))


def test_a_small_change_among_many_chips_is_not_a_drift():
    values = np.arange(20_000.0)
    (found,) = metrics.shifts({"a": values}, {"a": values + 1_000})
    assert found.p_value < 1e-9 and found.distance == pytest.approx(0.05)
    assert not found.found(0.01)


def test_a_score_of_minus_infinity_is_the_lowest():
    (found,) = metrics.shifts({"a": np.arange(30.0)}, {"a": np.full(30, -np.inf)})
    assert found.distance == 1 and not found.higher


def test_missing_values_are_named():
    with pytest.raises(ValueError, match="got the statistics b, wanted a"):
        metrics.shifts({"a": [1.0]}, {"b": [1.0]})
    for values in ([], [np.nan]):
        with pytest.raises(ValueError, match="a: got . values, wanted some, and none NaN"):
            metrics.shifts({"a": [1.0]}, {"a": values})
