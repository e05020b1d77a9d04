"""Feature norm: keeps the features of known classes short."""

import jax.numpy as jnp

from jaxatr.config import Field
from jaxatr.tasks.open_set.terms.term import Option, Seen, Share, Term


def value(seen: Seen) -> Share:
    """Adds up the squared norms of the features."""
    squares = jnp.sum(jnp.square(seen.out.features), axis=-1)
    return seen.over_known(lambda labels: squares)


PART = Term(
    "feature_norm",
    {
        "loss.feature_norm_weight": Option(
            Field(0.0, "weight of the mean squared norm of the features; 0: off"),
            lambda weight: weight >= 0,
            "0 (off) or more",
        )
    },
    value,
)
