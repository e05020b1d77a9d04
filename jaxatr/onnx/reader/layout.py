"""Images with channels last, between operators that compute them so.

ONNX has channels before pixels, the kernels have them last. Inside of one jitted program XLA could
drop the transpositions between two layers, but does not where gradients are added, cut off or
summed. So a result of a layer of images is held with its channels last until something else than a
layer or an operator element by element reads it. What then is left are transpositions that directly
follow their inverse, which XLA drops.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxatr.onnx.ops.registry import Operator

_RANK = 4


@dataclass(frozen=True)
class ChannelsLast:
    """A value ``[b, c, h, w]``, held as ``[b, h, w, c]``."""

    array: jax.Array


def plain(value: Any) -> Any:
    """Returns a value as ONNX has it."""
    return jnp.moveaxis(value.array, -1, 1) if isinstance(value, ChannelsLast) else value


def held(value: Any) -> Any:
    """Returns an image that is traced with its channels last, anything else as it is.

    Outside of a trace each transposition would be computed.
    """
    images = isinstance(value, Tracer) and value.ndim == _RANK
    return ChannelsLast(jnp.moveaxis(value, 1, -1)) if images else value


def arguments(
    operator: Operator, names: Iterable[str], values: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Returns the values that an operator reads, and whether they have their channels last."""
    given = {name: values[name] for name in names if name}
    images = [value for value in given.values() if isinstance(value, ChannelsLast)]
    if operator.layout == "any" and images:
        others = [value for value in given.values() if not isinstance(value, ChannelsLast)]
        if all(np.ndim(value) <= _RANK for value in others):
            return {name: _turned(value) for name, value in given.items()}, True
    return {name: plain(value) for name, value in given.items()}, False


def _turned(value: Any) -> Any:
    """Returns an operand, which others are broadcast with, with its channels last."""
    if isinstance(value, ChannelsLast):
        return value.array
    if np.ndim(value) == 0:
        return value
    whole = value.reshape((1,) * (_RANK - np.ndim(value)) + value.shape)
    return (
        np.moveaxis(whole, 1, -1) if isinstance(whole, np.ndarray) else jnp.moveaxis(whole, 1, -1)
    )


def results(operator: Operator, given: tuple, turned: bool) -> tuple:
    """Returns the results of an operator as they are held.

    Args:
      operator: that gave them.
      given: as it gave them.
      turned: whether they have their channels last.
    """
    if turned:
        return tuple(map(ChannelsLast, given))
    return tuple(map(held, given)) if operator.layout == "channels" else given
