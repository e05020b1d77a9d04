"""The needs of scores beside the logits, and how they are computed for a batch of chips.

A score names its needs (:attr:`jaxatr.openset.Score.needs`); a new need is one more entry here.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr import models, openset
from jaxatr.resolve import nearest
from jaxatr.typing import Array, Float, Network, PyTree


class Need(NamedTuple):
    """Something that a score may need.

    Attributes:
      phrase: what it is, for messages.
      compute: ``(module, variables, images [b, h, w, c]) -> [b, ...]``, of normalised images, pure;
        None for what the network gives with its logits.
    """

    phrase: str
    compute: Callable[[Network, PyTree, Array], Array] | None = None


def odin(module: Network, variables: PyTree, images: Float[Array, "b h w c"]) -> Float[Array, " b"]:
    """Computes ODIN's score, which moves the image by a gradient."""

    def logits_of(images: Array) -> Array:
        return module.apply(variables, images, train=False).logits

    return openset.odin_score(logits_of, images)


def gradient_norms(
    module: Network, variables: PyTree, images: Float[Array, "b h w c"]
) -> Float[Array, "b l"]:
    """Computes the squared norm of each parameter array's gradient under the confounding label."""
    norms = models.squared_gradient_norms(
        module,
        variables,
        lambda out: openset.conflabel.confounding_loss(out.logits),
        images,
        train=False,
    )
    return jnp.stack(list(norms.values()), axis=-1)


NEEDS: Mapping[str, Need] = {
    "open_logits": Need("the binary classifiers"),
    "features": Need("the features"),
    "extra_logits": Need("a class of images that are no known targets"),
    "odin": Need("a gradient with respect to the image", odin),
    "gradient_norms": Need("a gradient with respect to the parameters", gradient_norms),
}
"""By name."""

COMPUTED = frozenset(name for name, need in NEEDS.items() if need.compute)
"""The needs that are computed from single images."""


def compute(
    needs: Collection[str], module: Network, variables: PyTree, images: Float[jax.Array, "b h w c"]
) -> dict[str, Array]:
    """Computes those of the needs that the network does not give with its logits."""
    return {
        name: function(module, variables, images)
        for name in sorted(needs)
        if (function := NEEDS[name].compute)
    }


def refusal(score: openset.Score, given: Collection[str]) -> str:
    """Says why a run cannot compute a score; empty if it can.

    Args:
      score: to be computed.
      given: names of the needs that the run's task gives.
    """
    for name in score.needs:
        if name not in NEEDS:
            return (
                f"needs {name!r}, which no network gives; they give {', '.join(NEEDS)}"
                f"{nearest(name, NEEDS)}"
            )
        if name not in given:
            where = "there is for single images alone, not for tracks"
            if NEEDS[name].compute is None:
                where = "this run does not have"
            return f"needs {NEEDS[name].phrase}, which {where}"
    return ""
