r"""Energy after pruning all but the largest features and rescaling those (Djurisic et al. 2023).

The largest features of each example are kept and multiplied by :math:`e^{s_1 / s_2}`, where
:math:`s_1` and :math:`s_2` are the sums of the features before and after pruning; the others are
set to 0. The score is minus the energy of the resulting logits. This is ASH-S of "Extremely simple
activation shaping", the best of the paper's three variants on its benchmarks. The other two are
available as options: ASH-P only prunes, and ASH-B sets all kept features to the same value, so that
their sum is that of all. Features must be non-negative.
"""

from typing import Literal

import jax.numpy as jnp

from jaxatr.openset.detectors import scale
from jaxatr.openset.detectors.energy import energy_score
from jaxatr.openset.head import Head, logits_of
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float

Variant = Literal["s", "p", "b"]

PERCENTILE = 90.0
"""Percentage of the features that is set to 0, as in the paper for ImageNet and CIFAR-100."""


def shaped(
    features: Float[ArrayLike, "b d"],
    *,
    percentile: float = PERCENTILE,
    variant: Variant = "s",
) -> Float[Array, "b d"]:
    """Prunes and rescales features; all features equal to the smallest kept one are kept.

    Args:
      percentile: percentage of the features that is set to 0.
      variant: ``"s"``, ``"p"`` or ``"b"``, for the paper's ASH-S, ASH-P and ASH-B.

    Raises:
      ValueError: the variant does not exist, or no feature is left.
    """
    x = jnp.asarray(features, jnp.float32)
    least = scale.largest(x, percentile)[:, -1:]
    below = x < least
    pruned = jnp.where(below, 0, x)  # a feature that is NaN stays NaN
    if variant == "s":
        return pruned * scale.factor(x, pruned)
    if variant == "b":
        level = jnp.sum(x, axis=1, keepdims=True) / jnp.sum(~below, axis=1, keepdims=True)
        return jnp.where(below, 0, level)
    if variant != "p":
        raise ValueError(f"variant: got {variant!r}, wanted 's', 'p' or 'b'")
    return pruned


def score(
    model: Head,
    features: Float[ArrayLike, "b d"],
    *,
    percentile: float = PERCENTILE,
    variant: Variant = "s",
) -> Float[Array, " b"]:
    """Computes minus the energy of the shaped features.

    Args:
      percentile: percentage of the features that is set to 0.
      variant: ``"s"``, ``"p"`` or ``"b"``, for the paper's ASH-S, ASH-P and ASH-B.
    """
    x = shaped(features, percentile=percentile, variant=variant)
    return energy_score(logits_of(x, model.kernel, model.bias))


PART = Score.of_arrays("ash", "ASH-S", score, scale.fit, traced=score, model=Head)
