"""Open-set scores and rules. Higher is more known, always."""

from jaxatr.openset import conflabel, mahalanobis, nearest_neighbour, openmax, vim
from jaxatr.openset.averaging import mean_outputs, mean_over
from jaxatr.openset.detectors import (
    DEFAULT,
    FITTED,
    NEEDS,
    OWN_TRAINING,
    Fitted,
    Head,
    fit_detectors,
    names,
)
from jaxatr.openset.evaluation import evaluate
from jaxatr.openset.odin import odin_score
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.recorded import (
    confident_mistakes,
    recorded_predictions,
    recorded_scores,
    worst_mistakes,
)
from jaxatr.openset.rule import calibrate_gamma, decide
from jaxatr.openset.scores import cbc_score, energy_score, max_logit_score, softmax_score

__all__ = [
    "DEFAULT",
    "FITTED",
    "NEEDS",
    "OWN_TRAINING",
    "UNKNOWN",
    "Fitted",
    "Head",
    "Outputs",
    "calibrate_gamma",
    "cbc_score",
    "confident_mistakes",
    "conflabel",
    "decide",
    "energy_score",
    "evaluate",
    "fit_detectors",
    "mahalanobis",
    "max_logit_score",
    "mean_outputs",
    "mean_over",
    "names",
    "nearest_neighbour",
    "odin_score",
    "openmax",
    "recorded_predictions",
    "recorded_scores",
    "softmax_score",
    "vim",
    "worst_mistakes",
]
