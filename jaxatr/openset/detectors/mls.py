"""Largest logit (Vaze et al. 2022).

"A good closed-set classifier is all you need".
"""

import chex
import jax.numpy as jnp

from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float

THRESHOLD = 3.0
"""Threshold of the code of Safaei et al. (2023) (table 2), independent of γ."""


def max_logit_score(logits: Float[ArrayLike, "b k"]) -> Float[Array, " b"]:
    """Returns the largest logit."""
    chex.assert_rank(logits, 2)
    return jnp.max(jnp.asarray(logits), axis=-1)


PART = Score.of_arrays(
    "mls",
    "MLS",
    max_logit_score,
    traced=max_logit_score,
    fixed_threshold=lambda gamma: THRESHOLD,
)
