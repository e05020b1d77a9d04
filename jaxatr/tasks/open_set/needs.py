"""The inputs of scores other than logits ("needs"), and their computation for a batch of chips.

A score lists its needs by name (:attr:`jaxatr.openset.Score.needs`). New needs are added here.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr import models, openset
from jaxatr.resolve import nearest
from jaxatr.typing import Array, Config, Float, Network, PyTree

MAP_SIZE = 8
"""Maximum rows and columns of a map for scores; larger maps are averaged."""


class Need(NamedTuple):
    """An input of scores.

    Attributes:
      phrase: description for messages.
      compute: ``(module, variables, images [b, h, w, c]) -> [b, ...]`` for normalised images, pure;
        None if it needs no computation.
      absent: why a run may not provide it, for messages.
      of_classes: whether it depends on all classes' logits, so that no class can be left out
        afterwards.
      exports: whether it has a form in ONNX.
    """

    phrase: str
    compute: Callable[[Network, PyTree, Array], Array] | None = None
    absent: str = "this run does not have"
    of_classes: bool = False
    exports: bool = True


def odin(module: Network, variables: PyTree, images: Float[Array, "b h w c"]) -> Float[Array, " b"]:
    """Computes the score of ODIN, which perturbs the image along a gradient."""

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


def pooled(maps: Float[Array, "b h w f"], most: int = MAP_SIZE) -> Float[Array, "b h2 w2 f"]:
    """Averages maps over cells of nearly equal size, to at most ``most`` rows and columns.

    If the size is not a multiple of ``most``, neighbouring cells share a pixel.
    """
    for axis in (1, 2):
        size = maps.shape[axis]
        if size > most:
            cells = [(i * size // most, -(-(i + 1) * size // most)) for i in range(most)]
            means = [jnp.mean(jax.lax.slice_in_dim(maps, *cell, axis=axis), axis) for cell in cells]
            maps = jnp.stack(means, axis)
    return maps


def with_maps(
    names: Collection[str], module: Network, variables: PyTree, images: Float[Array, "b h w c"]
) -> dict[str, Array]:
    """Computes a network's outputs and maps ``[b, h, w, f]`` that its backbone sows, in one pass.

    The maps are averaged by :func:`pooled` and converted to float16, so that those of a whole data
    set fit into memory. Values are clipped to the range of float16.

    Args:
      names: names of the maps; empty for a network that sows none.
      module: a network of single images.
      variables: parameters and batch statistics of the network.
      images: normalised images.
    """
    if not names:
        return module.apply(variables, images, train=False)._asdict()
    out, state = module.apply(variables, images, train=False, mutable=["intermediates"])
    sown = state["intermediates"]["backbone"]
    largest = float(jnp.finfo(jnp.float16).max)
    maps = {name: pooled(sown[name][0].astype(jnp.float32)) for name in names}
    clipped = {name: jnp.clip(one, -largest, largest) for name, one in maps.items()}
    return out._asdict() | {name: one.astype(jnp.float16) for name, one in clipped.items()}


def stage_map(name: str) -> Need:
    """Returns the need for the map of a stage."""
    place = name.removeprefix("map_").replace("stage", "stage ")

    def compute(module: Network, variables: PyTree, images: Array) -> Array:
        return with_maps([name], module, variables, images)[name]

    return Need(
        f"the map of the {place} ({name})" if place == "stem" else f"the map of {place} ({name})",
        compute,
        "is only available for single images and backbones with stages, which list the maps that "
        "they sow as `maps`",
    )


GRADIENT = "is only available for single images, not for tracks"

MAPS = ("map_stem", "map_stage1", "map_stage2", "map_stage3", "map_stage4")
"""The maps that a backbone may sow."""

NEEDS: Mapping[str, Need] = {
    "open_logits": Need("the binary classifiers"),
    "features": Need("the features"),
    "extra_logits": Need("a class of images that are not known targets"),
    "image": Need("the chip itself", absent=GRADIENT),
    "odin": Need("a gradient with respect to the image", odin, GRADIENT, of_classes=True),
    "gradient_norms": Need(
        "a gradient with respect to the parameters",
        gradient_norms,
        GRADIENT,
        of_classes=True,
        exports=False,
    ),
    **{name: stage_map(name) for name in MAPS},
}
"""All needs by name. ``image`` is the chip before normalisation, in its own dtype; callers add it
from the batch."""

COMPUTED = frozenset(name for name, need in NEEDS.items() if need.compute)
"""The needs that are computed from single images."""


def given_by(module: Network, config: Config) -> frozenset[str]:
    """Returns the needs that a run's network of single images provides."""
    maps = frozenset(getattr(getattr(module, "backbone", None), "maps", ()))
    return frozenset({"features", "image"}) | COMPUTED - (frozenset(MAPS) - maps) | binary(config)


def binary(config: Config) -> frozenset[str]:
    """Returns ``open_logits`` as a need, if a run trains the binary classifiers."""
    return frozenset() if config.loss.open == "none" else frozenset({"open_logits"})


def outputs_with(
    needs: Collection[str], module: Network, variables: PyTree, images: Float[jax.Array, "b h w c"]
) -> dict[str, Array]:
    """Computes a network's outputs, and the given needs that are computed."""
    found = with_maps(sorted(set(needs) & set(MAPS)), module, variables, images)
    others = {name: NEEDS[name].compute for name in sorted(needs) if name not in MAPS}
    return found | {name: one(module, variables, images) for name, one in others.items() if one}


def refusal(score: openset.Score, given: Collection[str]) -> str:
    """Returns why a run cannot compute a score; empty if it can.

    Args:
      score: the score.
      given: names of the needs that the run's task provides.
    """
    for name in sorted(score.all_needs):
        if name not in NEEDS:
            return (
                f"needs {name!r}, which no network provides; available are {', '.join(NEEDS)}"
                f"{nearest(name, NEEDS)}"
            )
        if name not in given:
            return f"needs {NEEDS[name].phrase}, which {NEEDS[name].absent}"
    return ""


def in_jax_alone(score: openset.Score) -> str:
    """Returns why only jax can compute a score's needs; empty if other engines can too."""
    phrases = [NEEDS[name].phrase for name in sorted(score.all_needs) if not NEEDS[name].exports]
    return f"needs {phrases[0]}, which only jax computes" if phrases else ""
