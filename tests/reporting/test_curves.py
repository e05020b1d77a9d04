"""Curves have the measured areas, and look the same after simplification."""

import numpy as np
import pytest

from jaxatr import metrics
from jaxatr.reporting.curves import rate_curve, thin


@pytest.mark.parametrize("seed", range(4))
def test_areas_are_the_measures(seed):
    rng = np.random.default_rng(seed)
    known, unknown = rng.integers(0, 12, 60) + 2.0, rng.integers(0, 12, 45) * 1.0  # many ties
    correct = rng.random(60) < 0.8
    roc, oscr = rate_curve(known, np.ones(60, bool), unknown), rate_curve(known, correct, unknown)
    assert np.trapezoid(roc[:, 1], roc[:, 0]) == pytest.approx(metrics.auroc(known, unknown))
    area = np.trapezoid(oscr[:, 1], oscr[:, 0])
    assert area == pytest.approx(metrics.oscr(known, correct, unknown))
    assert roc[-1].tolist() == [1, 1] and oscr[-1].tolist() == [1, correct.mean()]


def test_curve_by_hand():
    curve = rate_curve(np.array([3.0, 1.0]), np.array([True, False]), np.array([2.0, 1.0]))
    assert curve.tolist() == [[0, 0], [0, 0.5], [0.5, 0.5], [1, 0.5]]


def distance(point, start, end):
    """Distance from a point to a segment, by brute force."""
    places = start + np.linspace(0, 1, 2001)[:, None] * (end - start)
    return np.hypot(*(places - point).T).min()


@pytest.mark.parametrize("tolerance", [0.05, 0.5])
def test_no_point_is_further_from_the_thinned_line(tolerance):
    rng = np.random.default_rng(0)
    points = np.cumsum(rng.exponential(size=(80, 2)), axis=0)
    few = thin(points, tolerance)
    assert len(few) < len(points)
    assert few[0].tolist() == points[0].tolist() and few[-1].tolist() == points[-1].tolist()
    for point in points:
        nearest = min(distance(point, a, b) for a, b in zip(few, few[1:], strict=False))
        assert nearest <= tolerance + 1e-2


def test_degenerate_lines():
    same = np.ones((5, 2))
    assert thin(same, 0.1).tolist() == [[1, 1], [1, 1]]
    assert thin(same[:1], 0.1).tolist() == [[1, 1]]
    straight = np.stack([np.arange(9.0), 2 * np.arange(9.0)], axis=1)
    assert thin(straight, 1e-9).tolist() == [[0, 0], [8, 16]]
