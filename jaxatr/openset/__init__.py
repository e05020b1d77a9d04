"""Open-set scores and decision rules. A higher score always means more known.

Mismatched shapes raise chex's ``AssertionError``.
"""

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.calibration import (
    Calibration,
    Sigmoid,
    fit_calibration,
    fit_sigmoid,
    fit_temperature,
    standing_of,
)
from jaxatr.openset.conformal import (
    class_thresholds,
    conformal_p_values,
    conformal_threshold,
    examples_needed,
)
from jaxatr.openset.decision import Answers, Decision, Further, calibrate
from jaxatr.openset.detector import Detector
from jaxatr.openset.detectors import (
    conflabel,
    conflabel_detector,
    mahalanobis,
    openmax,
    vim,
)
from jaxatr.openset.detectors.cbc import cbc_score
from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.detectors.mls import max_logit_score
from jaxatr.openset.detectors.odin import odin_score
from jaxatr.openset.detectors.softmax import softmax_score
from jaxatr.openset.enrolment import compared_rows, enrol, enrol_scores
from jaxatr.openset.ensemble import (
    ENSEMBLE,
    Pooled,
    as_pooled,
    fit_ensemble,
    fit_out_of_fold,
    pool,
)
from jaxatr.openset.evaluation import evaluate, fixed_thresholds
from jaxatr.openset.fit import Fitted, fit_scores
from jaxatr.openset.graph import TracedDecision, traced_decision, without_form
from jaxatr.openset.head import Head
from jaxatr.openset.outputs import UNKNOWN, Outputs, concatenated, mean_outputs, mean_over
from jaxatr.openset.registry import DEFAULT, SCORES, choose_scores, create
from jaxatr.openset.registry import list_scores as list
from jaxatr.openset.rule import calibrate_gamma, decide, gamma_rule
from jaxatr.openset.score import Answer, Comparing, OwnTraining, Scale, Score
from jaxatr.openset.storage import from_arrays, to_arrays
from jaxatr.openset.trials import Compared, Trial, best_of, compare, leave_classes_out, left_out
from jaxatr.openset.unlabelled import CannotTell, Mixture, fit_mixture
from jaxatr.openset.unseen import (
    are_few,
    as_unseen,
    folds_of,
    out_of_fold,
    with_field,
    with_training,
)

__all__ = [
    "Answer",
    "DEFAULT",
    "ENSEMBLE",
    "SCORES",
    "UNKNOWN",
    "Answers",
    "Calibration",
    "CannotTell",
    "Compared",
    "Comparing",
    "Decision",
    "Detector",
    "Fitted",
    "Further",
    "Head",
    "Mixture",
    "Outputs",
    "OwnTraining",
    "Pooled",
    "Scale",
    "Score",
    "Sigmoid",
    "TracedDecision",
    "Trial",
    "are_few",
    "as_pooled",
    "as_unseen",
    "best_of",
    "calibrate",
    "calibrate_gamma",
    "cbc_score",
    "choose_scores",
    "class_thresholds",
    "compare",
    "compared_rows",
    "concatenated",
    "conflabel",
    "conflabel_detector",
    "conformal_p_values",
    "conformal_threshold",
    "create",
    "decide",
    "energy_score",
    "enrol",
    "enrol_scores",
    "evaluate",
    "examples_needed",
    "fit_calibration",
    "fit_ensemble",
    "fit_mixture",
    "fit_out_of_fold",
    "fit_scores",
    "fit_sigmoid",
    "fit_temperature",
    "fixed_thresholds",
    "folds_of",
    "from_arrays",
    "gamma_rule",
    "leave_classes_out",
    "left_out",
    "list",
    "mahalanobis",
    "max_logit_score",
    "mean_outputs",
    "mean_over",
    "nearest_neighbour",
    "odin_score",
    "openmax",
    "out_of_fold",
    "pool",
    "softmax_score",
    "standing_of",
    "to_arrays",
    "traced_decision",
    "vim",
    "with_field",
    "with_training",
    "without_form",
]
