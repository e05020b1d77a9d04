"""Energy with only the tenth of the last layer's weights that contribute most (Sun and Li 2022).

A weight's contribution is the weight times the mean of its feature. The weights that contribute
least are set to 0, and the score is minus the energy of the remaining weights' logits.

DICE, from "Leveraging sparsification for out-of-distribution detection".
"""

import numpy as np

from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.head import Head, last_layer, logits_of
from jaxatr.openset.inputs import finite
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


def fit(features: Float[ArrayLike, "n d"], head: Head, *, percentile: float = 90.0) -> Head:
    """Prunes the last layer.

    Args:
      percentile: percentage of the weights that is set to 0; OpenOOD uses 90.

    Raises:
      ValueError: a feature is not finite, or ``percentile`` is out of range.
    """
    if not 0 <= percentile < 100:
        raise ValueError(f"percentile: got {percentile}, wanted a number in [0, 100)")
    features = finite("features", features)
    kernel, bias = last_layer(head, features.shape[1])
    contribution = features.mean(axis=0)[:, None] * kernel
    kept = contribution > np.percentile(contribution, percentile)
    return Head(np.where(kept, kernel, 0), bias)


def score(model: Head, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes minus the energy with the pruned layer."""
    return energy_score(logits_of(features, model.kernel, model.bias))


PART = Score.of_arrays("dice", "DICE", score, fit, traced=score, model=Head)
