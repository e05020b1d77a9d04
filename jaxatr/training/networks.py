"""Networks of finished runs as functions: for ONNX, and to be explained."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr.typing import ArrayLike, PyTree


class Exportable(NamedTuple):
    """The network of a run as a function that ONNX can hold.

    Attributes:
      apply: ``(variables, images, *further) -> arrays``, of normalised chips ``[b, h, w, c]``; the
        arrays in the order of ``outputs``, or by name.
      variables: of the network.
      outputs: names of the outputs; empty where they are given by name.
      classes: names of the columns of its logits.
      frames: chips of a track, where images are ``[b, frames, h, w, c]``; 0 for single chips.
      further: name to an example of each further input, for a batch of one.
      properties: JSON values for the file's metadata.
      raw: whether ``apply`` takes the chips in their raw units instead, and normalises them itself.
    """

    apply: Callable[..., Sequence[jax.Array] | Mapping[str, jax.Array]]
    variables: PyTree
    outputs: tuple[str, ...]
    classes: tuple[str, ...]
    frames: int = 0
    further: Mapping[str, np.ndarray] = {}
    properties: Mapping[str, Any] = {}
    raw: bool = False


class Target(NamedTuple):
    """A trained classifier, which is to be explained.

    Attributes:
      logits: ``(variables, images) -> [b, k]`` of float32 images ``[b, h, w, c]`` in their raw
        units; pure, and differentiable in the images.
      variables: a pytree of arrays.
      classes: names of the k classes.
      source: facts that identify the network in results, as JSON values.
    """

    logits: Callable[..., jax.Array]
    variables: PyTree
    classes: tuple[str, ...]
    source: Mapping[str, Any]


class Surrogate(NamedTuple):
    """A trained network that explains another one in a single pass.

    Attributes:
      target: the network that it explains.
      saliency: from images ``[b, h, w, c]`` in their raw units to maps ``[b, h, w]`` in [0, 1].
    """

    target: Target
    saliency: Callable[[ArrayLike], jax.Array]


def digest(variables: PyTree) -> str:
    """Hashes arrays and their shapes, by SHA-256."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(variables):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype} {array.shape}".encode())
        # Bytes that are there are not copied: an array may be larger than the memory.
        if array.size:
            found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
