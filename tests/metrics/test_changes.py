"""Changes over time: the tests against references, what is found, and how often by chance."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxatr import metrics


def days(count, each):
    return np.repeat(np.arange(count), each)


def test_a_run_of_periods_has_the_distance_and_the_p_value_of_scipy():
    generator = np.random.default_rng(0)
    reference, values = generator.normal(size=90), generator.normal(0.4, 1, size=75)
    periods = days(3, 25)
    scan = metrics.scan_values(reference, values, periods)
    for first in range(3):
        for last in range(first, 3):
            chosen = values[(periods >= first) & (periods <= last)]
            wanted = stats.ks_2samp(chosen, reference, method="asymp")
            n = len(chosen) * 90 / (len(chosen) + 90)
            limit = stats.kstwobign.sf(math.sqrt(n) * abs(scan.effect[first, last]))
            assert scan.log_p[first, last] == pytest.approx(math.log(limit), rel=1e-6)
            # Of 165 values, 128 are looked at, so that the distance can be a little smaller.
            assert abs(scan.effect[first, last]) <= wanted.statistic + 1e-12
            assert abs(scan.effect[first, last]) == pytest.approx(wanted.statistic, abs=0.02)
    assert scan.effect[0, 2] > 0  # the values are higher
    assert np.isnan(scan.log_p[2, 0]) and scan.looks == 6


def test_few_values_have_the_distance_exactly():
    reference, values = np.arange(20.0), np.arange(20.0) + 10
    scan = metrics.scan_values(reference, values, np.zeros(20, int))
    assert scan.effect.tolist() == [[0.5]]
    lower = metrics.scan_values(reference, -values, np.zeros(20, int))
    assert lower.effect.tolist() == [[-1.0]]


def test_a_share_has_fishers_p_value():
    hits = np.repeat([True, False, True, False], [6, 24, 15, 15])
    scan = metrics.scan_shares((5, 50), hits, days(2, 30))
    assert scan.effect[1, 1] == pytest.approx(15 / 30 - 5 / 50)
    one_sided = stats.fisher_exact([[15, 15], [5, 45]], alternative="greater").pvalue
    assert scan.log_p[1, 1] == pytest.approx(math.log(2 * one_sided))
    assert scan.effect[0, 1] == pytest.approx(21 / 60 - 5 / 50)


def test_periods_with_few_examples_are_looked_at_together_only():
    scan = metrics.scan_shares((5, 50), np.zeros(30, bool), days(3, 10))
    assert scan.looks == 3  # of two or three of the periods
    assert np.isnan(scan.log_p[0, 0]) and np.isfinite(scan.log_p[0, 1])
    assert metrics.scan_shares((5, 19), np.zeros(60, bool), days(3, 20)).looks == 0


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (slice(12, 20), [(12, 19)]),
        (slice(7, 8), [(7, 7)]),
        (slice(0, 20), [(0, 19)]),
        (slice(0, 0), []),
    ],
)
def test_the_change_is_found_where_it_is(changed, wanted):
    generator = np.random.default_rng(1)
    periods = days(20, 60)
    moved = np.isin(periods, np.arange(20)[changed])
    scan = metrics.scan_values(
        generator.normal(size=400), generator.normal(2.0 * moved, 1.0), periods
    )
    found = metrics.changes(scan, 0.01, scan.looks)
    assert [(one.first, one.last) for one in found] == wanted
    assert all(one.effect > 0.4 for one in found)
    shares = metrics.scan_shares((20, 200), generator.random(1200) < 0.1 + 0.6 * moved, periods)
    found = metrics.changes(shares, 0.01, shares.looks)
    assert [(one.first, one.last) for one in found] == wanted


def test_two_changes_in_opposite_directions_are_two():
    periods = days(9, 40)
    centre = np.select([periods < 3, periods < 6], [0.0, 3.0], -3.0)
    values = np.random.default_rng(2).normal(centre, 1.0)
    scan = metrics.scan_values(values[:120], values[120:], periods[120:] - 3)
    found = metrics.changes(scan, 0.01, scan.looks)
    assert [(one.first, one.last, one.effect > 0) for one in found] == [(0, 2, True), (3, 5, False)]


def test_a_small_change_of_many_examples_does_not_count():
    generator = np.random.default_rng(3)
    values = generator.normal(0.15, 1, 20_000)  # a distance of 0.06
    scan = metrics.scan_values(generator.normal(size=20_000), values, np.zeros(20_000, int))
    assert scan.log_p[0, 0] < math.log(1e-6) and not metrics.changes(scan, 0.01, 1)


def test_no_values_are_an_error():
    with pytest.raises(ValueError, match="got 0, wanted some"):
        metrics.scan_values(np.zeros(30), np.zeros(0), np.zeros(0, int))
    with pytest.raises(ValueError, match="none NaN"):
        metrics.scan_values(np.zeros(30), np.full(3, np.nan), np.zeros(3, int))
    with pytest.raises(ValueError, match="got none"):
        metrics.scan_shares((5, 50), np.zeros(0, bool), np.zeros(0, int))
