"""Measures of a recogniser: NumPy float64 in, Python floats out."""

from jaxatr.metrics.open_set import (
    auroc,
    closed_set_accuracy,
    fpr_at_tpr,
    open_set_accuracy,
    oscr,
    threshold_at_tpr,
)
from jaxatr.metrics.summary import Summary, summarize

__all__ = [
    "Summary",
    "auroc",
    "closed_set_accuracy",
    "fpr_at_tpr",
    "open_set_accuracy",
    "oscr",
    "summarize",
    "threshold_at_tpr",
]
