"""Energy after large features are cut to a limit (Sun et al. 2021).

Features above a limit are cut to it, and the score is minus the energy of the logits of what is
left. An unknown example's large logits often come from few large features.

"Out-of-distribution detection with rectified activations".
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxatr.openset.inputs import finite
from jaxatr.openset.last_layer import last_layer, logits_of
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Head, Score
from jaxatr.openset.scores.energy import energy_score
from jaxatr.typing import Array, ArrayLike, Float


class ReAct(NamedTuple):
    """A fitted model.

    Attributes:
      limit: ``[]``, c, which no feature exceeds.
      kernel: ``[d, k]``, of the last layer.
      bias: ``[k]``.
    """

    limit: Float[ArrayLike, ""]
    kernel: Float[ArrayLike, "d k"]
    bias: Float[ArrayLike, " k"]


def fit(features: Float[ArrayLike, "n d"], head: Head, *, percentile: float = 90.0) -> ReAct:
    """Finds the limit that a share of all values of the features is below.

    Args:
      features: ``[n, d]``, of training examples.
      head: the last layer.
      percentile: that share in percent; the paper has 90.

    Raises:
      ValueError: a feature is not finite, or ``percentile`` is none.
    """
    if not 0 < percentile <= 100:
        raise ValueError(f"percentile: got {percentile}, wanted a number in (0, 100]")
    features = finite("features", features)
    return ReAct(np.percentile(features, percentile), *last_layer(head, features.shape[1]))


def score(model: ReAct, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes the energy, negated, of the cut features.

    Args:
      model: of :func:`fit`.
      features: ``[b, d]``.
    """
    cut = jnp.minimum(jnp.asarray(features), jnp.float32(model.limit))
    return energy_score(logits_of(cut, model.kernel, model.bias))


def _score(model: ReAct, outputs: Outputs) -> Array:
    return score(model, outputs.more["features"])


SCORE = Score(
    name="react",
    title="ReAct",
    score=_score,
    traced=_score,
    fit=lambda out, head: fit(out.more["features"], head),
    needs=("features",),
    model=ReAct,
)
