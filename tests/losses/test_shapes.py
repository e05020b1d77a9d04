"""Shapes that do not match are refused, although JAX could broadcast them to a wrong result.

Nothing depends on implicit promotion, which the caller may forbid.
"""

import jax
import jax.numpy as jnp
import numpy as np
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


CLASSES, MAPS = jnp.array([0, 1, 0, 1]), jnp.linspace(0, 1, 16)
EVERY = {
    "area": lambda x: losses.saliency_area(x[:, None], 0.3),
    "clustering": lambda x: losses.clustering(x, CLASSES),
    "contrastive": lambda x: losses.contrastive(x, x[::-1], CLASSES == 0),
    "distillation": lambda x: losses.distillation(x, x[::-1], CLASSES),
    "faithfulness": lambda x: losses.faithfulness(x, x[::-1], CLASSES),
    "influence": lambda x: losses.influence(
        x[:, None], jnp.stack([x, -x], 1)[:, :, None], x[:, 2:]
    ),
    "lifted_structure": lambda x: losses.lifted_structure(x, CLASSES),
    "n_pairs": lambda x: losses.n_pairs(x, CLASSES, l2_weight=0.1),
    "open_set": lambda x: losses.open_set(x, x[::-1], CLASSES),
    "quadruplet": lambda x: quadruplet.combined(x, -x, x[::-1], 2 * x, x, x, CLASSES, CLASSES),
    "reciprocal_logits": lambda x: losses.reciprocal_logits(x, x[:2]),
    "semi_hard": lambda x: losses.semi_hard_triplet(x, CLASSES, negatives="one"),
    "smoothed": lambda x: losses.smoothed_cross_entropy(x, CLASSES),
    "supervised_contrastive": lambda x: losses.supervised_contrastive(x, CLASSES),
    "top_share": lambda x: losses.top_share(x[:, None], x[:, 0]),
    "triplet_global": lambda x: losses.triplet_global(x, CLASSES),
}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("loss", EVERY)
def test_the_caller_may_forbid_implicit_promotion(loss, dtype):
    def both(x):
        return jax.jit(jax.value_and_grad(lambda x: jnp.sum(EVERY[loss](x))))(x)

    x = MAPS.reshape(4, 4).astype(dtype)
    wanted = both(x)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        found = both(x)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
