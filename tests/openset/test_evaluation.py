"""The measures of the paper's tables, from outputs with known results."""

import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset.detectors.mls import THRESHOLD


def outputs(seed=0, n=80, k=4, unknown=0.4):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < unknown, openset.UNKNOWN, rng.integers(0, k, n))
    logits = rng.normal(size=(n, k)) + 3 * np.eye(k)[labels] * (labels >= 0)[:, None]
    open_logits = rng.normal(size=(n, k)) + 4 * np.eye(k)[labels] * (labels >= 0)[:, None]
    return openset.Outputs(np.float32(logits), np.float32(open_logits), labels)


SCORES = openset.choose_scores(openset.DEFAULT)


def evaluate(test, validation=None, gamma=0.9, **options):
    """Evaluates the default scores of outputs."""
    fitted = openset.fit_scores(SCORES)
    held_out = None if validation is None else fitted.on(validation)
    fixed = openset.fixed_thresholds(SCORES, gamma)
    return openset.evaluate(
        test.labels, test.predicted, fitted.on(test), held_out, fixed=fixed, **options
    )


def test_every_figure_by_hand():
    test, validation = outputs(), outputs(1, unknown=0)
    result = evaluate(test, validation, gamma=0.8, tpr=0.9)
    known, predicted = test.labels >= 0, test.logits.argmax(1)
    assert (result["num_known"], result["num_unknown"]) == (known.sum(), (~known).sum())
    assert result["closed_accuracy"] == np.mean(predicted[known] == test.labels[known])

    score = test.open_logits[np.arange(80), predicted]
    row = result["scores"]["cbc"]
    assert row["auroc"] == metrics.auroc(score[known], score[~known])
    assert row["fpr_at_tpr"] == metrics.fpr_at_tpr(score[known], score[~known], tpr=0.9)
    assert row["fpr_at_tpr_of_unknown"] == metrics.fpr_at_tpr(
        -score[~known], -score[known], tpr=0.9
    )
    assert row["aupr_in"] == metrics.aupr_in(score[known], score[~known])
    assert row["aupr_out"] == metrics.aupr_out(score[known], score[~known])
    right = (predicted == test.labels)[known]
    assert row["ccr_at_fpr"] == metrics.ccr_at_fpr(score[known], right, score[~known], fpr=0.1)
    accepted = 1 / (1 + np.exp(-np.float64(score))) >= 0.8
    decided = np.where(accepted, predicted, openset.UNKNOWN)
    assert row["open_accuracy"] == np.mean(decided == test.labels)

    held_out = validation.open_logits[np.arange(80), validation.logits.argmax(1)]
    threshold = np.sort(held_out)[int(0.1 * 81) - 1]  # the conformal one
    assert row["fitted_threshold"] == threshold
    decided = np.where(score >= threshold, predicted, openset.UNKNOWN)
    assert row["fitted_open_accuracy"] == np.mean(decided == test.labels)
    assert np.mean(held_out >= np.log(result["fitted_gamma"] / (1 - result["fitted_gamma"]))) >= 0.9


def test_fixed_thresholds_are_those_of_the_paper():
    rows = evaluate(outputs(), gamma=0.9)["scores"]
    assert rows["softmax"]["threshold"] == pytest.approx(np.log(0.9))
    assert rows["mls"]["threshold"] == THRESHOLD == 3.0
    assert rows["cbc"]["threshold"] == pytest.approx(np.log(9))
    assert "fitted_threshold" not in rows["cbc"]


def test_an_infinite_threshold_is_recorded_as_none():
    test = outputs()
    certain = evaluate(test, gamma=1.0)["scores"]["cbc"]
    assert certain["threshold"] is None
    assert certain["open_accuracy"] == np.mean(test.labels == openset.UNKNOWN)
    everything = evaluate(outputs(), gamma=0.0)["scores"]["softmax"]
    assert everything["threshold"] is None and "open_accuracy" in everything
    with pytest.raises(ValueError, match="gamma: got 1.5, wanted a probability"):
        openset.fixed_thresholds(SCORES, 1.5)


def test_without_unknown_examples_there_is_no_detection():
    test = outputs(unknown=0)
    values = {"mls": test.logits.max(axis=1)}
    result = openset.evaluate(test.labels, test.predicted, values)
    assert result["scores"] == {"mls": {"threshold": None}} and "closed_accuracy" in result
    result = openset.evaluate(test.labels, test.predicted, values, fixed={"mls": 3.0})
    assert result["scores"] == {"mls": {"threshold": 3.0}}


def test_without_known_examples_there_is_no_accuracy():
    result = evaluate(outputs(unknown=1.1))
    assert "closed_accuracy" not in result and result["num_known"] == 0


def test_arrays_of_other_lengths_are_a_callers_mistake(unchecked):
    test = outputs()
    with pytest.raises(AssertionError, match="shape"):
        openset.evaluate(test.labels, test.predicted, {"mls": np.zeros(79)})


def test_a_score_that_names_the_class_is_measured_by_it():
    test = outputs()
    known, score = test.labels >= 0, test.logits.max(axis=1)
    named = np.where(np.arange(80) % 3 == 0, (test.predicted + 1) % 4, test.predicted)
    values = {"mls": score, "gallery": score}
    found = openset.evaluate(
        test.labels, test.predicted, values, fixed={"gallery": 1.0}, named={"gallery": named}
    )
    rows = found["scores"]
    assert found["closed_accuracy"] == np.mean((test.predicted == test.labels)[known])
    assert "closed_accuracy" not in rows["mls"]
    assert rows["gallery"]["closed_accuracy"] == np.mean((named == test.labels)[known])
    correct = (named == test.labels)[known]
    assert rows["gallery"]["oscr"] == metrics.oscr(score[known], correct, score[~known])
    assert rows["gallery"]["auroc"] == rows["mls"]["auroc"]
    decided = np.where(score >= 1, named, openset.UNKNOWN)
    assert rows["gallery"]["open_accuracy"] == np.mean(decided == test.labels)
