"""Measures of a recogniser and of its embedding: NumPy in, NumPy out.

A measure of a whole set is a Python float; a measure of each image is an array. Shapes that do not
fit are an ``AssertionError`` of chex.
"""

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
    "Summary",
    "auroc",
    "closed_set_accuracy",
    "fpr_at_tpr",
    "map_at_r",
    "nmi",
    "open_set_accuracy",
    "oscr",
    "recall_at_k",
    "summarize",
    "threshold_at_tpr",
]
