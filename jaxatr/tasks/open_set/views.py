"""Test-time averaging: the mean of a network's outputs over flips and shifts of the chip.

Krizhevsky et al. (2012), "ImageNet Classification with Deep Convolutional Neural Networks", section
4.1, average over crops and their reflections. Here logits are averaged instead of probabilities, so
that they remain the last layer's outputs for the mean features, on which many scores rely.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.data.augment import flip_and_shift
from jaxatr.tasks.open_set.needs import MAPS, outputs_with
from jaxatr.tasks.open_set.reframing import mark
from jaxatr.typing import Array, Config, Float, Network, PyTree

_FIELDS = ("test_flip_horizontal", "test_flip_vertical", "test_shift")


class View(NamedTuple):
    """A flip and shift of a chip.

    Attributes:
      flips: whether to flip top to bottom, and left to right.
      shift: rows and columns to shift by after flipping.
    """

    flips: tuple[bool, bool]
    shift: tuple[int, int]


def views_of(config: Config) -> tuple[View, ...]:
    """Returns the views over which a run's outputs are averaged; the first is the chip itself.

    They combine all flips with all shifts: none, and ``open_set.test_shift`` pixels up, down, left
    and right.
    """
    horizontal, vertical, by = (config.open_set.get(name, 0) for name in _FIELDS)
    flips = [(v, h) for v in (False, True)[: 1 + bool(vertical)] for h in (False, bool(horizontal))]
    shifts = [(0, 0), (-by, 0), (by, 0), (0, -by), (0, by)]
    return tuple(dict.fromkeys(View(flip, shift) for shift in shifts for flip in flips))


def kept_as(name: str, config: Config) -> str:
    """Returns the name under which a fit is saved; it identifies the views and the boxes."""
    horizontal, vertical, by = (config.open_set.get(field, 0) for field in _FIELDS)
    marks = "h" * bool(horizontal) + "v" * bool(vertical) + (f"{by}" if by else "")
    return f"{name}.mean_{marks}{mark(config)}" if marks else f"{name}{mark(config)}"


def outputs_of(
    module: Network,
    variables: PyTree,
    images: Float[Array, "b h w c"],
    needs: Collection[str],
    views: tuple[View, ...],
) -> dict[str, Array]:
    """Computes a network's outputs and further inputs of scores, averaged over views.

    Args:
      module: a network of single images.
      variables: parameters and batch statistics of the network.
      images: normalised images.
      needs: names of the inputs of scores (:data:`jaxatr.tasks.open_set.needs.NEEDS`).
      views: views from :func:`views_of`.
    """

    def infer(images: Array) -> dict[str, Array]:
        return outputs_with(needs, module, variables, images)

    return averaged(infer, images, views)


def averaged(
    infer: Callable[[Float[Array, "b h w c"]], Mapping[str, Array]],
    images: Float[Array, "b h w c"],
    views: tuple[View, ...],
) -> dict[str, Array]:
    """Computes the mean of a network's outputs over views of each image.

    Logits, features and other scalar or vector outputs are averaged over all views. Maps are
    flipped back and averaged over the flips only, because a shift by less than a pixel of the map
    cannot be undone.

    Args:
      infer: maps images to outputs by name, ``[b, ...]`` each.
      images: normalised images.
      views: at least one view; the first is the image itself.
    """
    if len(views) == 1:
        return dict(infer(images))
    flips = jnp.array([view.flips for view in views])
    shifts = jnp.array([view.shift for view in views])
    count = images.shape[0]

    def one(view: tuple[Array, Array]) -> dict[str, Array]:
        flip, shift = (jnp.broadcast_to(value, (count, 2)) for value in view)
        found = infer(flip_and_shift(images, flip, shift))
        return {name: _back(v, view[0]) if name in MAPS else v for name, v in found.items()}

    every = jax.lax.map(one, (flips, shifts))  # sequential, so that the network is compiled once
    unmoved = jnp.array([view.shift == (0, 0) for view in views])
    return {
        name: jnp.average(values.astype(jnp.float32), 0, unmoved if name in MAPS else None).astype(
            values.dtype
        )
        for name, values in every.items()
    }


def _back(maps: Float[Array, "b h w f"], flip: Array) -> Float[Array, "b h w f"]:
    """Undoes a flip."""
    for axis in (0, 1):
        maps = jnp.where(flip[axis], jnp.flip(maps, axis + 1), maps)
    return maps
