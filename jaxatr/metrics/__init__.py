"""Measures of a recogniser, of its embedding and of its explanations: NumPy in, NumPy out.

What is one number for a whole set is a Python float, what belongs to an image an array.
"""

from jaxatr.metrics.blur import RISE_BLUR, Blur
from jaxatr.metrics.faithfulness import Convention, Faithfulness, deletion, insertion
from jaxatr.metrics.open_set import (
    auroc,
    closed_set_accuracy,
    fpr_at_tpr,
    open_set_accuracy,
    oscr,
    threshold_at_tpr,
)
from jaxatr.metrics.randomisation import randomise_layers
from jaxatr.metrics.retrieval import map_at_r, nmi, recall_at_k
from jaxatr.metrics.saliency import (
    mean_intensity,
    pointing_game,
    saliency_similarity,
    share_inside,
)
from jaxatr.metrics.summary import Summary, summarize

__all__ = [
    "RISE_BLUR",
    "Blur",
    "Convention",
    "Faithfulness",
    "Summary",
    "auroc",
    "closed_set_accuracy",
    "deletion",
    "fpr_at_tpr",
    "insertion",
    "map_at_r",
    "mean_intensity",
    "nmi",
    "open_set_accuracy",
    "oscr",
    "pointing_game",
    "randomise_layers",
    "recall_at_k",
    "saliency_similarity",
    "share_inside",
    "summarize",
    "threshold_at_tpr",
]
