"""Outlier exposure (Hendrycks et al. 2019): every class learns to reject the outliers."""

import jax.numpy as jnp

from jaxatr import losses
from jaxatr.config import Field
from jaxatr.tasks.open_set.terms.term import Option, Seen, Share, Term


def value(seen: Seen) -> Share:
    """Adds up the losses of the examples without a known class."""
    values = losses.outlier_exposure(seen.out.logits)
    if seen.loss.open != "none":
        values += seen.loss.open_weight * losses.refused_by_all(seen.out.open_logits)
    weights = sum(jnp.where(labels >= 0, 0, weights) for labels, weights in seen.targets)
    return jnp.sum(weights * values), jnp.sum(weights)


PART = Term(
    "outlier_exposure",
    {
        "loss.outlier_weight": Option(
            Field(0.5, "weight of the loss of the outliers"),
            lambda weight: weight >= 0,
            "0 or more",
        ),
        "open_set.outliers": Option(
            Field(
                "",
                "training images of no known class, which every class learns to reject (outlier "
                "exposure, Hendrycks et al. 2019): a folder, an archive, or a split of the data "
                "set; never the unknown classes of the test",
            )
        ),
    },
    value,
    on=lambda config: bool(config.open_set.get("outliers")),
)
