"""Networks of finished runs as functions, for ONNX export and for explanations."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxatr.data.intake import Intake
from jaxatr.typing import ArrayLike, PyTree


class Exportable(NamedTuple):
    """The network of a run as a function that can be exported to ONNX.

    Attributes:
      apply: ``(variables, images, *further) -> arrays`` for normalised chips ``[b, h, w, c]``;
        returns the arrays in the order of ``outputs``, or by name.
      variables: variables of the network.
      outputs: names of the outputs; empty if ``apply`` returns them by name.
      classes: class names of the logits' columns.
      frames: chips of a track, if images are ``[b, frames, h, w, c]``; 0 for single chips.
      further: examples of the further inputs, for a batch of one, by name.
      properties: JSON values for the file's metadata.
      raw: whether ``apply`` takes chips in raw units and normalises them itself.
      scenes: preprocessing of scenes, whose size is chosen at the export, with a default one; None
        for a network of chips.
      convert: converts the ``ModelProto`` to another precision; None for float32.
    """

    apply: Callable[..., Sequence[jax.Array] | Mapping[str, jax.Array]]
    variables: PyTree
    outputs: tuple[str, ...]
    classes: tuple[str, ...]
    frames: int = 0
    further: Mapping[str, np.ndarray] = {}
    properties: Mapping[str, Any] = {}
    raw: bool = False
    scenes: Intake | None = None
    convert: Callable[[Any], Any] | None = None


class Target(NamedTuple):
    """A trained classifier to explain.

    Attributes:
      logits: ``(variables, images) -> [b, k]`` for float32 images ``[b, h, w, c]`` in raw units;
        pure, and differentiable with respect to the images.
      variables: a pytree of arrays.
      classes: names of the k classes.
      source: JSON values that identify the network in results.
    """

    logits: Callable[..., jax.Array]
    variables: PyTree
    classes: tuple[str, ...]
    source: Mapping[str, Any]


class Surrogate(NamedTuple):
    """A trained network that explains another one in a single forward pass.

    Attributes:
      target: the network to explain.
      saliency: maps images ``[b, h, w, c]`` in raw units to saliency maps ``[b, h, w]`` in [0, 1].
    """

    target: Target
    saliency: Callable[[ArrayLike], jax.Array]


def digest(variables: PyTree) -> str:
    """Returns the SHA-256 of arrays, including their dtypes and shapes."""
    sha256 = hashlib.sha256()
    for leaf in jax.tree.leaves(variables):
        array = np.ascontiguousarray(leaf)
        sha256.update(f"{array.dtype} {array.shape}".encode())
        # Hashed without a copy, because memory-mapped arrays may be larger than memory.
        if array.size:
            sha256.update(array.reshape(-1).view(np.uint8).data)
    return sha256.hexdigest()
