"""The metrics of a decision on test examples: acceptance, accuracy and calibration."""

from typing import Any

import numpy as np

from jaxatr import metrics, openset
from jaxatr.openset.logistic import softmax
from jaxatr.recognition.choice import RunDecision
from jaxatr.recognition.enrolment_measures import has_threshold


def judge(
    made: RunDecision,
    test: openset.Outputs,
    measured: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> None:
    """Adds the decision's metrics to an evaluation.

    Args:
      made: the decision.
      test: the recogniser's outputs for the test examples.
      measured: results of an evaluation, to which ``decides``, the name of the score, and
        ``decision`` are added.
      arrays: arrays of an evaluation, to which ``decided_…`` are added.
    """
    measured["decides"] = None if made.decision is None else made.decision.score.name
    measured["decision"] = dict(made.record)
    if made.decision is None or not has_threshold(made.decision):
        return
    answers = made.decision(test)
    arrays |= {
        "decided_label": test.labels,
        "decided_nearest": answers.nearest,
        "decided_accepted": answers.accepted,
        "decided_score": answers.scores,
        "decided_threshold": answers.thresholds,
        "decided_probability": answers.probabilities.max(axis=1),
    }
    if answers.known_probabilities is not None:
        arrays["decided_known_probability"] = answers.known_probabilities
    classes, calibration = test.logits.shape[1], made.decision.calibration
    thresholds, guarantees = made.decision.thresholds(classes), made.decision.guarantees(classes)
    measured["decision"] |= {
        "thresholds": [float(t) if np.isfinite(t) else None for t in thresholds],
        "guarantees": [None if np.isnan(g) else float(g) for g in guarantees],
        "fitted_to": None if calibration is None else calibration.basis,
        "test": decision_metrics(made.decision, test, answers),
    }


def decision_metrics(
    decision: openset.Decision, test: openset.Outputs, answers: openset.Answers | None = None
) -> dict[str, Any]:
    """Measures a decision on test examples.

    Args:
      decision: the decision; it has a threshold.
      test: the recogniser's outputs for the examples.
      answers: the decision's answers for these outputs, if they are computed already.

    Returns:
      Accuracies, acceptance rates, AUROC, areas under the risk-coverage curve, and the reliability
      of the probabilities. Measures of known or unknown examples are absent if there are none.
    """
    answers = decision(test) if answers is None else answers
    return _shares(answers, test.labels) | _confidence(decision, answers, test)


def accepted(made: RunDecision, unknown: openset.Outputs) -> dict[str, float]:
    """Measures the fraction of unknown examples that a decision accepts.

    Returns:
      ``unknown_accepted``; empty if there is no decision or no threshold.
    """
    if made.decision is None or not has_threshold(made.decision):
        return {}
    return _shares(made.decision(unknown), unknown.labels)


def _shares(answers: openset.Answers, labels: np.ndarray) -> dict[str, float]:
    """Returns acceptance rates, accuracies and AUROC."""
    known, shares = labels != openset.UNKNOWN, {}
    right = (answers.nearest == labels)[known]
    if known.any():
        shares["closed_accuracy"] = float(np.mean(right))
        shares["known_accepted"] = float(np.mean(answers.accepted[known]))
    if not known.all():
        shares["unknown_accepted"] = float(np.mean(answers.accepted[~known]))
    if known.any() and not known.all():
        decided = np.where(answers.accepted, answers.nearest, openset.UNKNOWN)
        accuracy = metrics.open_set_accuracy(decided, labels, unknown=openset.UNKNOWN)
        shares["open_accuracy"] = accuracy
        shares["auroc"] = metrics.auroc(answers.scores[known], answers.scores[~known])
    return shares


def _confidence(
    decision: openset.Decision, answers: openset.Answers, test: openset.Outputs
) -> dict[str, Any]:
    """Returns risk-coverage areas and the calibration of probabilities."""
    known = test.labels != openset.UNKNOWN
    result: dict[str, Any] = {}
    # Any class is a wrong answer for an unknown example.
    result["aurc"] = metrics.aurc(answers.scores, answers.nearest == test.labels)
    # The network has no probabilities of enrolled classes.
    trained = known & (test.labels < test.logits.shape[1])
    if trained.any():
        shares, right = answers.probabilities[trained], (test.predicted == test.labels)[trained]
        result["closed_aurc"] = metrics.aurc(shares.max(axis=1), right)
        result["class_probability"] = _diagram(shares.max(axis=1), right)
        plain = softmax(test.logits[trained])
        before = metrics.expected_calibration_error(np.clip(plain.max(axis=1), 0, 1), right)
        result["class_probability"]["error_before"] = before
    if known.any() and not known.all() and decision.probability_is in ("calibrated", "score"):
        # Even odds: known and unknown examples have half of the weight each.
        weights = np.where(known, 0.5 / known.sum(), 0.5 / (~known).sum())
        assert answers.known_probabilities is not None
        result["known_probability"] = _diagram(answers.known_probabilities, known, weights)
    return result


def _diagram(
    probabilities: np.ndarray, outcomes: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Any]:
    diagram = metrics.reliability(np.clip(probabilities, 0, 1), outcomes, weights=weights)
    filled = diagram.weight > 0
    rows = np.stack(diagram, axis=1)[filled]
    return {"error": diagram.error, "bins": rows.tolist()}
