"""The figures of the paper's tables, from outputs whose answer is known."""

import numpy as np
import pytest

from jaxatr import metrics, openset
from jaxatr.openset.evaluation import MAX_LOGIT_THRESHOLD


def outputs(seed=0, n=80, k=4, unknown=0.4):
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(n) < unknown, openset.UNKNOWN, rng.integers(0, k, n))
    logits = rng.normal(size=(n, k)) + 3 * np.eye(k)[labels] * (labels >= 0)[:, None]
    open_logits = rng.normal(size=(n, k)) + 4 * np.eye(k)[labels] * (labels >= 0)[:, None]
    return openset.Outputs(np.float32(logits), np.float32(open_logits), labels)


def test_every_figure_by_hand():
    test, validation = outputs(), outputs(1, unknown=0)
    result = openset.evaluate(test, validation, gamma=0.8, tpr=0.9)
    known, predicted = test.labels >= 0, test.logits.argmax(1)
    assert (result["num_known"], result["num_unknown"]) == (known.sum(), (~known).sum())
    assert result["closed_accuracy"] == np.mean(predicted[known] == test.labels[known])

    score = test.open_logits[np.arange(80), predicted]
    row = result["scores"]["cbc"]
    assert row["auroc"] == metrics.auroc(score[known], score[~known])
    assert row["fpr_at_tpr"] == metrics.fpr_at_tpr(score[known], score[~known], tpr=0.9)
    accepted = 1 / (1 + np.exp(-np.float64(score))) >= 0.8
    decided = np.where(accepted, predicted, openset.UNKNOWN)
    assert row["open_accuracy"] == np.mean(decided == test.labels)

    held_out = validation.open_logits[np.arange(80), validation.logits.argmax(1)]
    threshold = np.sort(held_out)[80 - 72]
    assert row["fitted_threshold"] == threshold
    decided = np.where(score >= threshold, predicted, openset.UNKNOWN)
    assert row["fitted_open_accuracy"] == np.mean(decided == test.labels)
    assert np.mean(held_out >= np.log(result["fitted_gamma"] / (1 - result["fitted_gamma"]))) >= 0.9


def test_fixed_thresholds_are_those_of_the_paper():
    rows = openset.evaluate(outputs(), gamma=0.9)["scores"]
    assert rows["softmax"]["threshold"] == pytest.approx(np.log(0.9))
    assert rows["mls"]["threshold"] == MAX_LOGIT_THRESHOLD == 3.0
    assert rows["cbc"]["threshold"] == pytest.approx(np.log(9))
    assert "fitted_threshold" not in rows["cbc"]


def test_without_unknown_examples_there_is_no_detection():
    result = openset.evaluate(outputs(unknown=0), scores=openset.fit_detectors(("mls",)).scores)
    assert result["scores"] == {"mls": {"threshold": 3.0}} and "closed_accuracy" in result


def test_without_known_examples_there_is_no_accuracy():
    result = openset.evaluate(outputs(unknown=1.1))
    assert "closed_accuracy" not in result and result["num_known"] == 0


def test_select():
    chosen = outputs().select(np.arange(80) % 2 == 0)
    assert len(chosen.labels) == len(chosen.logits) == 40
