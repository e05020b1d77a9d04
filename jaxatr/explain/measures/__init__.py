"""Measures of saliency maps, from NumPy arrays to NumPy arrays with one number per image.

Insertion and deletion run the network; the others need the maps only. Mismatched shapes raise
chex's ``AssertionError``.
"""

from jaxatr.explain.measures.blur import RISE_BLUR, Blur
from jaxatr.explain.measures.faithfulness import Convention, Faithfulness, deletion, insertion
from jaxatr.explain.measures.judge import TITLES, judge
from jaxatr.explain.measures.randomisation import randomise_layers
from jaxatr.explain.measures.saliency import (
    mean_intensity,
    pointing_game,
    saliency_similarity,
    share_inside,
)

__all__ = [
    "RISE_BLUR",
    "TITLES",
    "Blur",
    "Convention",
    "Faithfulness",
    "deletion",
    "insertion",
    "judge",
    "mean_intensity",
    "pointing_game",
    "randomise_layers",
    "saliency_similarity",
    "share_inside",
]
