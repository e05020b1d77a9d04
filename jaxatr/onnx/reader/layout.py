"""Keeps images in channels-last layout between the operators that compute in it.

ONNX is channels-first, the kernels are channels-last. In one jitted program XLA could drop the
transpositions between two layers, but it does not where gradients are added, masked or summed.
Therefore the result of an image layer stays channels-last until it is read by an operator that is
neither an image layer nor elementwise. Each transposition that remains then directly follows its
inverse, and XLA drops both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.onnx.ops.registry import Operator

_RANK = 4


@dataclass(frozen=True)
class ChannelsLast:
    """A value ``[b, c, h, w]``, stored as ``[b, h, w, c]``."""

    array: jax.Array


def plain(value: Any) -> Any:
    """Returns a value in ONNX's layout, channels first."""
    return jnp.moveaxis(value.array, -1, 1) if isinstance(value, ChannelsLast) else value


def held(value: Any) -> Any:
    """Stores traced images channels-last; returns any other value unchanged.

    Without tracing, every transposition would be computed.
    """
    images = isinstance(value, Tracer) and value.ndim == _RANK
    return ChannelsLast(jnp.moveaxis(value, 1, -1)) if images else value


def arguments(
    operator: Operator, names: Iterable[str], values: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Returns the values that an operator reads, and whether they are channels-last."""
    given = {name: values[name] for name in names if name}
    images = [value for value in given.values() if isinstance(value, ChannelsLast)]
    if operator.layout == "any" and images:
        others = [value for value in given.values() if not isinstance(value, ChannelsLast)]
        if all(np.ndim(value) <= _RANK for value in others):
            return {name: _turned(value) for name, value in given.items()}, True
    return {name: plain(value) for name, value in given.items()}, False


def _turned(value: Any) -> Any:
    """Returns an operand in channels-last layout, with leading axes added for broadcasting."""
    if isinstance(value, ChannelsLast):
        return value.array
    if np.ndim(value) == 0:
        return value
    images = value.reshape((1,) * (_RANK - np.ndim(value)) + value.shape)
    module = np if isinstance(images, np.ndarray) else jnp
    return module.moveaxis(images, 1, -1)


def results(operator: Operator, given: tuple, turned: bool) -> tuple:
    """Returns an operator's results in the layout to store them in."""
    if turned:
        return tuple(map(ChannelsLast, given))
    return tuple(map(held, given)) if operator.layout == "channels" else given
