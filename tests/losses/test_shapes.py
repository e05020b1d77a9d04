"""Shapes that do not match are refused, although JAX could broadcast them to a wrong result."""

import jax.numpy as jnp
import pytest

from jaxatr import losses
from jaxatr.losses import quadruplet

ROWS, LOGITS, LABELS = jnp.ones((4, 3)), jnp.ones((4, 2)), jnp.zeros(4, int)
FOUR, ONE = (ROWS,) * 4, jnp.ones(1, bool)

MISMATCHED = {
    "masked_mean": lambda: losses.masked_mean(jnp.ones(4), ONE),
    "masked_mean of rows": lambda: losses.masked_mean(jnp.ones(4), jnp.ones((4, 1), bool)),
    "contrastive": lambda: losses.contrastive(ROWS, ROWS, jnp.ones((4, 1), bool)),
    "triplet": lambda: losses.triplet(ROWS, ROWS, ROWS, valid=ONE),
    "joint": lambda: quadruplet.joint(*FOUR, valid=ONE),
    "global_statistics": lambda: quadruplet.global_statistics(*FOUR, valid=ONE),
    "heads": lambda: quadruplet.hierarchical_cross_entropy(LOGITS, LOGITS[:1], LABELS, LABELS[:1]),
    "valid": lambda: quadruplet.hierarchical_cross_entropy(
        LOGITS, LOGITS, LABELS, LABELS, valid=ONE
    ),
    "combined": lambda: quadruplet.combined(*FOUR, LOGITS[:1], LOGITS[:1], LABELS[:1], LABELS[:1]),
    "reciprocal_logits": lambda: losses.reciprocal_logits(ROWS, LOGITS),
    "open_space_risk": lambda: losses.open_space_risk(ROWS, ROWS[:, :1], LABELS, jnp.ones(())),
    "sparse_explanation": lambda: losses.sparse_explanation(LOGITS, LOGITS, jnp.ones((1, 2, 2))),
    "entropy": lambda: losses.entropy(jnp.ones(4)),
    "outlier_exposure": lambda: losses.outlier_exposure(jnp.ones(4)),
    "refused_by_all": lambda: losses.refused_by_all(jnp.ones(4)),
}


@pytest.mark.parametrize("loss", MISMATCHED)
def test_shapes_that_do_not_match_are_refused(loss, unchecked):
    with pytest.raises(AssertionError, match="shape|rank"):
        MISMATCHED[loss]()
