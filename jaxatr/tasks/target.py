"""The network that is explained: any function of images, with what it needs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from jaxatr.typing import PyTree


class Target(NamedTuple):
    """A trained classifier.

    Attributes:
      logits: ``(variables, images) -> [b, k]`` of float32 images ``[b, h, w, c]`` in their raw
        units; pure, and differentiable in the images.
      variables: a pytree of arrays.
      classes: names of the k classes.
      source: what a result must state of it, as JSON values.
    """

    logits: Callable[..., jax.Array]
    variables: PyTree
    classes: tuple[str, ...]
    source: Mapping[str, Any]


LoadTarget = Callable[[str], Target]
"""From what ``distillation.target`` names to the network."""
