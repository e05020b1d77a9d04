"""Metrics of recognisers and embeddings.

Metrics are Python floats; curves and diagrams are NumPy arrays. Mismatched shapes raise an
``AssertionError`` from chex.
"""

from jaxatr.metrics.calibration import (
    Reliability,
    aurc,
    expected_calibration_error,
    reliability,
    risk_coverage,
)
from jaxatr.metrics.changes import Change, Scan, changes, scan_shares, scan_values
from jaxatr.metrics.drift import Shift, shifts
from jaxatr.metrics.open_set import (
    aupr_in,
    aupr_out,
    auroc,
    ccr_at_fpr,
    closed_set_accuracy,
    fpr_at_tpr,
    fpr_at_tpr_of_unknown,
    open_set_accuracy,
    oscr,
    threshold_at_tpr,
)
from jaxatr.metrics.retrieval import map_at_r, nmi, recall_at_k
from jaxatr.metrics.summary import Summary, summarize

__all__ = [
    "Change",
    "Reliability",
    "Scan",
    "Shift",
    "Summary",
    "aupr_in",
    "aupr_out",
    "aurc",
    "auroc",
    "ccr_at_fpr",
    "changes",
    "closed_set_accuracy",
    "expected_calibration_error",
    "fpr_at_tpr",
    "fpr_at_tpr_of_unknown",
    "map_at_r",
    "nmi",
    "open_set_accuracy",
    "oscr",
    "recall_at_k",
    "reliability",
    "risk_coverage",
    "scan_shares",
    "scan_values",
    "shifts",
    "summarize",
    "threshold_at_tpr",
]
