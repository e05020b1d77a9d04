"""Open-set scores and rules. Higher is more known, always."""

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.averaging import mean_outputs, mean_over
from jaxatr.openset.choice import choose_scores
from jaxatr.openset.evaluation import evaluate, fixed_thresholds
from jaxatr.openset.fitting import Fitted, fit_scores
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.recorded import (
    Shown,
    confident_mistakes,
    further_scores,
    recorded_predictions,
    recorded_scores,
    shown,
    worst_mistakes,
)
from jaxatr.openset.rule import calibrate_gamma, decide
from jaxatr.openset.score import Answer, Head, OwnTraining, Scale, Score
from jaxatr.openset.scores import (
    DEFAULT,
    SCORES,
    conflabel,
    conflabel_detector,
    mahalanobis,
    openmax,
    vim,
)
from jaxatr.openset.scores.cbc import cbc_score
from jaxatr.openset.scores.energy import energy_score
from jaxatr.openset.scores.mls import max_logit_score
from jaxatr.openset.scores.odin import odin_score
from jaxatr.openset.scores.softmax import softmax_score

__all__ = [
    "Answer",
    "DEFAULT",
    "SCORES",
    "UNKNOWN",
    "Fitted",
    "Head",
    "Outputs",
    "OwnTraining",
    "Scale",
    "Score",
    "Shown",
    "calibrate_gamma",
    "cbc_score",
    "choose_scores",
    "confident_mistakes",
    "conflabel",
    "conflabel_detector",
    "decide",
    "energy_score",
    "evaluate",
    "fit_scores",
    "fixed_thresholds",
    "further_scores",
    "mahalanobis",
    "max_logit_score",
    "mean_outputs",
    "mean_over",
    "nearest_neighbour",
    "odin_score",
    "openmax",
    "recorded_predictions",
    "recorded_scores",
    "shown",
    "softmax_score",
    "vim",
    "worst_mistakes",
]
