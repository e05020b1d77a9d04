"""Energy after clipping large features (Sun et al. 2021).

Large logits of unknown examples often come from a few large features. Features are therefore
clipped to a limit; the score is minus the energy of the resulting logits.

"Out-of-distribution detection with rectified activations".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.head import Head, last_layer, logits_of
from jaxatr.openset.inputs import finite
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float


class ReAct(NamedTuple):
    """A fitted model.

    Attributes:
      limit: ``[]``, upper limit c of the features.
      kernel: ``[d, k]``, weights of the last layer.
      bias: ``[k]``, bias of the last layer.
    """

    limit: Float[ArrayLike, ""]
    kernel: Float[ArrayLike, "d k"]
    bias: Float[ArrayLike, " k"] | None


def fit(features: Float[ArrayLike, "n d"], head: Head, *, percentile: float = 90.0) -> ReAct:
    """Computes the limit as a percentile of all features.

    Args:
      percentile: the percentile, in (0, 100]; the paper uses 90.

    Raises:
      ValueError: a feature is not finite, or ``percentile`` is out of range.
    """
    if not 0 < percentile <= 100:
        raise ValueError(f"percentile: got {percentile}, wanted a number in (0, 100]")
    features = finite("features", features)
    return ReAct(np.percentile(features, percentile), *last_layer(head, features.shape[1]))


def score(model: ReAct, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes minus the energy of the clipped features."""
    clipped = jnp.minimum(jnp.asarray(features), jnp.float32(model.limit))
    return energy_score(logits_of(clipped, model.kernel, model.bias))


PART = Score.of_arrays("react", "ReAct", score, fit, traced=score, model=ReAct)
