"""Open-set scores and rules. Higher is more known, always."""

from jaxatr.openset.rule import calibrate_gamma, decide
from jaxatr.openset.scores import cbc_score, max_logit_score, softmax_score

__all__ = ["calibrate_gamma", "cbc_score", "decide", "max_logit_score", "softmax_score"]
