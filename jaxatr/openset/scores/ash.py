r"""Energy after all but the largest features are pruned and the rest scaled (Djurisic et al. 2023).

Of each example's features the largest are kept, the others set to 0, and what is kept is
multiplied by :math:`e^{s_1 / s_2}`, with :math:`s_1` the sum before and :math:`s_2` the sum after;
the score is minus the energy of the logits. Of the paper's three variants this is the best on its
benchmarks; the others, ASH-P, which only prunes, and ASH-B, which makes what is kept equal, can be
asked for.

ASH-S of "Extremely simple activation shaping"; features are 0 or more.
"""

from typing import Literal

import jax.numpy as jnp

from jaxatr.openset.last_layer import LastLayer, logits_of
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.openset.scores import scale
from jaxatr.openset.scores.energy import energy_score
from jaxatr.typing import Array, ArrayLike, Float

Variant = Literal["s", "p", "b"]

PERCENTILE = 90.0
"""Share of the features, in percent, that is set to 0: the paper's for ImageNet and CIFAR-100."""


def shaped(
    features: Float[ArrayLike, "b d"],
    *,
    percentile: float = PERCENTILE,
    variant: Variant = "s",
) -> Float[Array, "b d"]:
    """Prunes and rescales features; of equal ones at the limit all are kept.

    Args:
      features: ``[b, d]``, none below 0.
      percentile: share of them, in percent, that is set to 0.
      variant: of the paper's ASH-S, ASH-P and ASH-B.

    Raises:
      ValueError: there is no such variant, or nothing is left.
    """
    x = jnp.asarray(features, jnp.float32)
    kept = scale.largest(x, percentile)
    pruned = jnp.where(x >= kept[:, -1:], x, 0)
    if variant == "s":
        return pruned * scale.factor(x, percentile)
    if variant == "b":
        whole = jnp.sum(x, axis=1, keepdims=True) / kept.shape[1]
        return jnp.where(x >= kept[:, -1:], whole, 0)
    if variant != "p":
        raise ValueError(f"variant: got {variant!r}, wanted 's', 'p' or 'b'")
    return pruned


def score(
    model: LastLayer,
    features: Float[ArrayLike, "b d"],
    *,
    percentile: float = PERCENTILE,
    variant: Variant = "s",
) -> Float[Array, " b"]:
    """Computes the energy, negated, of the shaped features.

    Args:
      model: of :func:`jaxatr.openset.scores.scale.fit`.
      features: ``[b, d]``, none below 0.
      percentile: as :func:`shaped` has it.
      variant: as there.
    """
    x = shaped(features, percentile=percentile, variant=variant)
    return energy_score(logits_of(x, model.kernel, model.bias))


def _score(model: LastLayer, outputs: Outputs) -> Array:
    return score(model, outputs.more["features"])


SCORE = Score(
    name="ash",
    title="ASH-S",
    score=_score,
    traced=_score,
    fit=lambda out, head: scale.fit(out.more["features"], head),
    needs=("features",),
    model=LastLayer,
)
