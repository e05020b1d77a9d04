"""Metrics against plain loops over all thresholds, scikit-learn, and hand-derived values."""

import math

import numpy as np
import pytest
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score, roc_curve

from jaxatr import metrics


def draw(seed, ties):
    rng = np.random.default_rng(seed)
    known, unknown = rng.normal(0.7, 1, 60), rng.normal(0, 1, 45)
    if ties:
        known, unknown = np.round(known), np.round(unknown)
    return known, unknown, rng.random(60) < 0.8


def loop_area(known, correct, unknown):
    """Area of trapezoids through one point per distinct threshold, from the highest down."""
    points = [(0.0, 0.0)]
    for threshold in sorted({*known, *unknown}, reverse=True):
        accepted_unknown = sum(u >= threshold for u in unknown) / len(unknown)
        right = sum(c and s >= threshold for s, c in zip(known, correct, strict=True)) / len(known)
        points.append((accepted_unknown, right))
    return sum(
        (x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False)
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_areas_agree_with_the_swept_curve(seed, ties):
    known, unknown, correct = draw(seed, ties)
    assert metrics.oscr(known, correct, unknown) == pytest.approx(
        loop_area(known, correct, unknown), abs=1e-12
    )
    everything = np.ones(60, bool)
    auroc = metrics.auroc(known, unknown)
    assert auroc == pytest.approx(loop_area(known, everything, unknown), abs=1e-12)
    assert auroc == pytest.approx(metrics.oscr(known, everything, unknown), abs=1e-12)
    labels = np.r_[np.ones(60), np.zeros(45)]
    assert auroc == pytest.approx(roc_auc_score(labels, np.r_[known, unknown]), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_precision_and_recall_are_scikit_learns(seed, ties):
    known, unknown, _ = draw(seed, ties)
    scores, labels = np.r_[known, unknown], np.r_[np.ones(60), np.zeros(45)]
    for measure, sign in ((metrics.aupr_in, 1), (metrics.aupr_out, -1)):
        positive = labels if sign == 1 else 1 - labels
        precision, recall, _ = precision_recall_curve(positive, sign * scores)
        assert measure(known, unknown) == pytest.approx(auc(recall, precision), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("tpr", [0.5, 0.8, 0.95, 1.0])
def test_both_false_positive_rates_are_scikit_learns(tpr, ties):
    known, unknown, _ = draw(4, ties)
    scores, labels = np.r_[known, unknown], np.r_[np.ones(60), np.zeros(45)]
    for measure, positive, values in (
        (metrics.fpr_at_tpr, labels, scores),
        (metrics.fpr_at_tpr_of_unknown, 1 - labels, -scores),
    ):
        false, true, _ = roc_curve(positive, values, drop_intermediate=False)
        expected = false[np.argmax(true >= tpr - 1e-12)]
        assert measure(known, unknown, tpr=tpr) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("fpr", [0.0, 0.01, 0.1, 1 / 3, 0.9, 1.0])
def test_correct_rate_is_the_best_of_all_thresholds(fpr, ties):
    known, unknown, correct = draw(5, ties)
    rates = [
        np.mean((known >= threshold) & correct)
        for threshold in [-np.inf, *known, *unknown]
        if np.mean(unknown >= threshold) <= fpr + 1e-12
    ]
    found = metrics.ccr_at_fpr(known, correct, unknown, fpr=fpr)
    assert found == pytest.approx(max(rates, default=0), abs=1e-12)


def test_precision_recall_and_correct_rate_golden():
    assert metrics.aupr_in([2.0, 3.0], [0.0, 1.0]) == metrics.aupr_out([2.0, 3.0], [0.0, 1.0]) == 1
    # Of one known below one unknown: precision 1 at recall 0, 0 at 0, 1/2 at 1.
    assert metrics.aupr_in([0.0], [1.0]) == 0.25
    assert metrics.aupr_in([1.0], [1.0]) == 0.75  # of equal scores: from 1 straight to 1/2
    assert metrics.fpr_at_tpr_of_unknown([1.0, 2.0], [0.0, 0.5], tpr=0.95) == 0
    assert metrics.ccr_at_fpr([1.0, 2.0], [True, False], [0.0, 1.0], fpr=0.0) == 0
    assert metrics.ccr_at_fpr([1.0, 2.0], [True, False], [0.0, 1.0], fpr=0.5) == 0.5


def test_auroc_golden():
    assert metrics.auroc([2.0, 3.0], [0.0, 1.0]) == 1.0
    assert metrics.auroc([0.0], [1.0]) == 0.0
    assert metrics.auroc([1.0, 1.0], [1.0]) == 0.5
    assert metrics.auroc([np.inf, 0.0], [-np.inf, 0.0]) == 0.875


def test_oscr_golden_with_ties():
    # Thresholds 2 and 1: points (0, 1/2) (2/2, 2/3): the tie at 1 is one step, taken diagonally.
    area = metrics.oscr([2.0, 1.0, 1.0], [True, True, False], [1.0, 1.0])
    assert area == pytest.approx((1 / 3 + 2 / 3) / 2)


def test_oscr_is_bounded_by_closed_accuracy():
    known, unknown, correct = draw(0, ties=False)
    assert metrics.oscr(known + 100, correct, unknown) == pytest.approx(correct.mean())


def test_a_score_at_the_threshold_is_accepted():
    known = np.arange(1.0, 21.0)
    assert metrics.threshold_at_tpr(known, tpr=0.95) == 2.0
    assert metrics.fpr_at_tpr(known, [2.0, 1.9, 1.0, 30.0], tpr=0.95) == 0.5
    assert metrics.threshold_at_tpr(known, tpr=1.0) == 1.0
    assert metrics.threshold_at_tpr(known, tpr=1e-12) == 20.0


@pytest.mark.parametrize("tpr", [0.07, 0.5, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_threshold_is_the_highest_that_accepts_enough(tpr, ties):
    known, unknown, _ = draw(1, ties)
    known = np.r_[known, known[:40]]  # 100 of them: tpr * 100 is inexact in floating point
    threshold = metrics.threshold_at_tpr(known, tpr=tpr)
    assert np.mean(known >= threshold) >= tpr - 1e-12
    higher = [t for t in np.unique(known) if t > threshold]
    assert all(np.mean(known >= t) < tpr - 1e-12 for t in higher)
    expected = sum(u >= threshold for u in unknown) / len(unknown)
    assert metrics.fpr_at_tpr(known, unknown, tpr=tpr) == expected


def test_accuracies():
    labels, predictions = [0, 1, 2, 9, 9], [0, 2, 2, 9, 1]
    assert metrics.open_set_accuracy(predictions, labels, unknown=9) == 0.6
    assert metrics.closed_set_accuracy(predictions[:3], labels[:3]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.auroc([], [1.0]), "known_scores: got shape"),
        (lambda: metrics.auroc([1.0], [np.nan]), "unknown_scores: 1 of 1 are NaN"),
        (lambda: metrics.threshold_at_tpr([1.0], tpr=0.0), "tpr: got 0.0"),
        (lambda: metrics.aupr_out([1.0], []), "unknown_scores: got shape"),
        (lambda: metrics.ccr_at_fpr([1.0], [True], [1.0], fpr=1.5), "fpr: got 1.5, wanted a share"),
        (lambda: metrics.closed_set_accuracy([], []), "labels: got none"),
        (lambda: metrics.open_set_accuracy([1], [1], unknown=-1), "labels: none is -1"),
        (lambda: metrics.summarize([]), "values: got none"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.auroc([[1.0]], [1.0]), r"rank 2 \(shape \(1, 1\)\) but expected 1"),
        (lambda: metrics.oscr([1.0], [True, False], [1.0]), "have different shapes"),
        (lambda: metrics.closed_set_accuracy([1], [1, 2]), "have different shapes"),
    ],
)
def test_arrays_of_other_shapes_are_a_callers_mistake(call, message):
    with pytest.raises(AssertionError, match=message):
        call()


def test_summary():
    summary = metrics.summarize(iter([1.0, 2.0, 4.0]))
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.deviation == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert f"{summary:.1f}" == "2.3 ± 1.5"
    single = metrics.summarize([0.5])
    assert math.isnan(single.deviation) and f"{single:.2f}" == "0.50"
