"""Measures of a recogniser and of its embedding: NumPy in, NumPy out.

What is one number for a whole set is a Python float, what belongs to an image an array.
"""

from jaxatr.metrics.calibration import (
    Reliability,
    aurc,
    expected_calibration_error,
    reliability,
    risk_coverage,
)
from jaxatr.metrics.open_set import (
    auroc,
    closed_set_accuracy,
    fpr_at_tpr,
    open_set_accuracy,
    oscr,
    threshold_at_tpr,
)
from jaxatr.metrics.retrieval import map_at_r, nmi, recall_at_k
from jaxatr.metrics.summary import Summary, summarize

__all__ = [
    "Reliability",
    "Summary",
    "auroc",
    "aurc",
    "closed_set_accuracy",
    "expected_calibration_error",
    "fpr_at_tpr",
    "map_at_r",
    "nmi",
    "open_set_accuracy",
    "oscr",
    "recall_at_k",
    "reliability",
    "risk_coverage",
    "summarize",
    "threshold_at_tpr",
]
