"""The figures of a decision on test examples: what it accepts, and what its probabilities say."""

from typing import Any

import numpy as np
import scipy.special

from jaxatr import metrics, openset
from jaxatr.tasks.open_set.deciding import Made
from jaxatr.tasks.open_set.measured_enrolment import has_threshold


def judge(
    made: Made, test: openset.Outputs, measured: dict[str, Any], arrays: dict[str, np.ndarray]
) -> None:
    """Adds the decision's figures to an evaluation.

    Args:
      made: the decision.
      test: outputs on the test examples, as a recogniser would have them.
      measured: an evaluation's figures; gets ``decides``, the name of the score, and ``decision``.
      arrays: an evaluation's arrays; gets ``decided_…`` for each example.
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
    thresholds = made.decision.thresholds(test.logits.shape[1])
    measured["decision"] |= {
        "thresholds": [float(t) if np.isfinite(t) else None for t in thresholds],
        "test": _shares(answers, test.labels) | _sureness(made.decision, answers, test),
    }


def accepted(made: Made, unknown: openset.Outputs) -> dict[str, float]:
    """Measures which share of unknown examples a decision takes for known.

    Args:
      made: the decision.
      unknown: outputs on unknown examples.

    Returns:
      ``unknown_accepted``; nothing where there is no decision, or no threshold.
    """
    if made.decision is None or not has_threshold(made.decision):
        return {}
    return _shares(made.decision(unknown), unknown.labels)


def _shares(answers: openset.Answers, labels: np.ndarray) -> dict[str, float]:
    """Measures what is accepted, and what is right."""
    known, found = labels != openset.UNKNOWN, {}
    right = (answers.nearest == labels)[known]
    if known.any():
        found["closed_accuracy"] = float(np.mean(right))
        found["known_accepted"] = float(np.mean(answers.accepted[known]))
    if not known.all():
        found["unknown_accepted"] = float(np.mean(answers.accepted[~known]))
    if known.any() and not known.all():
        decided = np.where(answers.accepted, answers.nearest, openset.UNKNOWN)
        accuracy = metrics.open_set_accuracy(decided, labels, unknown=openset.UNKNOWN)
        found["open_accuracy"] = accuracy
        found["auroc"] = metrics.auroc(answers.scores[known], answers.scores[~known])
    return found


def _sureness(
    decision: openset.Decision, answers: openset.Answers, test: openset.Outputs
) -> dict[str, Any]:
    """Measures probabilities against what came true, and the order by confidence."""
    known = test.labels != openset.UNKNOWN
    found: dict[str, Any] = {}
    # An unknown example that is answered with a class is a wrong answer.
    found["aurc"] = metrics.aurc(answers.scores, answers.nearest == test.labels)
    # Classes that were enrolled have no probability of the network's.
    own = known & (test.labels < test.logits.shape[1])
    if own.any():
        shares, right = answers.probabilities[own], (test.predicted == test.labels)[own]
        found["closed_aurc"] = metrics.aurc(shares.max(axis=1), right)
        found["class_probability"] = _diagram(shares.max(axis=1), right)
        plain = scipy.special.softmax(np.asarray(test.logits[own], np.float64), axis=1)
        before = metrics.expected_calibration_error(np.clip(plain.max(axis=1), 0, 1), right)
        found["class_probability"]["error_before"] = before
    if known.any() and not known.all() and decision.probability_is in ("calibrated", "score"):
        # At even odds: each kind has half of the weight, however many there are.
        weights = np.where(known, 0.5 / known.sum(), 0.5 / (~known).sum())
        assert answers.known_probabilities is not None
        found["known_probability"] = _diagram(answers.known_probabilities, known, weights)
    return found


def _diagram(
    probabilities: np.ndarray, came_true: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Any]:
    diagram = metrics.reliability(np.clip(probabilities, 0, 1), came_true, weights=weights)
    filled = diagram.weight > 0
    rows = np.stack(diagram, axis=1)[filled]
    return {"error": diagram.error, "bins": rows.tolist()}
