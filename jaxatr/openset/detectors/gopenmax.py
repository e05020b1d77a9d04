"""OpenMax of a network trained with generated images as an additional class (Ge et al. 2017).

The logits of the generated images follow those of the known classes; their probability counts as
"unknown".
"""

import numpy as np

from jaxatr.openset.detectors import openmax
from jaxatr.openset.logistic import logit
from jaxatr.openset.score import OwnTraining, Score
from jaxatr.typing import ArrayLike, Float, Int


def fit(
    logits: Float[ArrayLike, "n k"],
    extra_logits: Float[ArrayLike, "n e"],
    labels: Int[ArrayLike, " n"],
) -> openmax.OpenMax:
    """Fits OpenMax to the known classes and the generated one.

    Args:
      labels: ``[n]``, 0 to k + e - 1.
    """
    return openmax.fit(np.concatenate([logits, extra_logits], axis=1), labels)


def score(
    model: openmax.OpenMax, logits: Float[ArrayLike, "b k"], extra_logits: Float[ArrayLike, "b e"]
) -> Float[np.ndarray, " b"]:
    """Computes the log odds of the known classes."""
    every = np.concatenate([logits, extra_logits], axis=1)
    return openmax.score(model, every, extra=np.shape(extra_logits)[1])


PART = Score.of_arrays(
    "gopenmax",
    "G-OpenMax",
    score,
    fit,
    fixed_threshold=logit,
    training=OwnTraining(
        baseline="gopenmax", train="jaxatr.runs.baselines.gopenmax:train", leaves="classifier"
    ),
    model=openmax.OpenMax,
)
