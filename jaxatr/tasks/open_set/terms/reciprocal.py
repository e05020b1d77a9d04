"""The open space risk of reciprocal points (ARPL, Chen et al. 2021), which are the closed head."""

from jaxatr import losses
from jaxatr.config import Field
from jaxatr.tasks.open_set.terms.term import Option, Seen, Share, Term


def value(seen: Seen) -> Share:
    """Adds up the risk of the examples of known classes."""
    head, features = seen.params["closed_head"], seen.out.features
    return seen.over_known(
        lambda labels: losses.open_space_risk(features, head["points"], labels, head["radius"])
    )


PART = Term(
    "open_space_risk",
    {
        "loss.reciprocal_weight": Option(
            Field(
                0.0,
                "weight of the open space risk of ARPL (Chen et al. 2021: 0.1), which makes the "
                "closed-set head one of reciprocal points",
            ),
            lambda weight: weight >= 0,
            "0 (off) or more",
        )
    },
    value,
)
