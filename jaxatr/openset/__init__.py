"""Open-set scores and rules. Higher is more known, always."""

from jaxatr.openset import conflabel
from jaxatr.openset.evaluation import UNKNOWN, Outputs, evaluate
from jaxatr.openset.rule import calibrate_gamma, decide
from jaxatr.openset.scores import cbc_score, max_logit_score, softmax_score

__all__ = [
    "UNKNOWN",
    "Outputs",
    "calibrate_gamma",
    "cbc_score",
    "conflabel",
    "decide",
    "evaluate",
    "max_logit_score",
    "softmax_score",
]
