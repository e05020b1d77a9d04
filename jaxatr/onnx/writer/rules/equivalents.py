"""Primitives that are written as jax functions of other primitives."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxatr.onnx.writer.dimensions import is_static
from jaxatr.onnx.writer.graph import Unsupported
from jaxatr.onnx.writer.translate import COMPUTED
from jaxatr.typing import Array


def _running(
    join: Callable[[Array, Array], Array], unit: float, params: Mapping[str, Any]
) -> Callable[[Array], Array]:
    """Returns a running reduction: each pass joins twice as many elements."""
    axis, reverse = params["axis"], params["reverse"]

    def run(x: Array) -> Array:
        length, step = x.shape[axis], 1
        if not is_static((length,)):
            raise Unsupported("along an axis whose size is free")
        whole = not jnp.issubdtype(x.dtype, jnp.inexact)
        limits: Any = jnp.iinfo(x.dtype) if whole and x.dtype != bool else None
        fill = np.clip(unit, limits.min, limits.max) if limits else unit
        while step < length:
            ends = (-step, step, 0) if reverse else (step, -step, 0)
            widths = [ends if one == axis else (0, 0, 0) for one in range(x.ndim)]
            x = join(x, lax.pad(x, jnp.asarray(fill, x.dtype), widths))
            step *= 2
        return x

    return run


def _atan2(y: Array, x: Array) -> Array:
    small, large = (of(jnp.abs(y), jnp.abs(x)) for of in (jnp.minimum, jnp.maximum))
    equal = (small == large) & (large != 0)  # also of two infinities
    angle = jnp.arctan(jnp.where(equal, 1, small / jnp.where(large == 0, 1, large)))
    angle = jnp.where(jnp.abs(y) > jnp.abs(x), np.pi / 2 - angle, angle)
    angle = jnp.where(_is_negative(x), np.pi - angle, angle)
    return jnp.where(_is_negative(y), -angle, angle)


def _is_negative(x: Array) -> Array:
    """Returns where a number has the sign minus, as -0 has."""
    return jnp.where(x == 0, 1 / x < 0, x < 0)


def _ordered(below: Callable[[Array, Array], Array], x: Array, y: Array) -> Array:
    """Compares numbers in the order of :func:`jax.numpy.sort`, where NaN is the largest."""
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return below(x, y)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), below(jnp.isnan(x), jnp.isnan(y)), below(x, y))


def _padded(config: Any, x: Array, fill: Array) -> Array:
    """Pads an array, with elements between its own as well."""
    for axis, (_, _, between) in enumerate(config):
        if between and x.shape[axis]:
            *before, length = x.shape[: axis + 1]
            rest = x.shape[axis + 1 :]
            x = x.reshape(*before, length, 1, *rest)
            x = lax.pad(x, fill, [(0, between * (one == axis + 1), 0) for one in range(x.ndim)])
            x = x.reshape(*before, length * (between + 1), *rest)
            x = lax.slice_in_dim(x, 0, x.shape[axis] - between, axis=axis)
    return lax.pad(x, fill, [(low, high, 0) for low, high, _ in config])


def _pad(params: Mapping[str, Any]) -> Callable[..., Array] | None:
    """Returns a function for padding between the elements, which ONNX's operator lacks."""
    config = params["padding_config"]
    return partial(_padded, config) if any(between for *_, between in config) else None


def _expanded(params: Mapping[str, Any]) -> Callable[..., list[Array]]:
    """Returns the function of a primitive of jax 0.12's newer kind, such as a search."""
    primitive = params["_prim"]

    def run(*leaves: Array) -> list[Array]:
        return jax.tree.leaves(primitive.expand(*primitive.in_tree.unflatten(leaves)))

    return run


COMPUTED |= {
    "atan2": lambda params: _atan2,
    "call_hi_primitive": _expanded,
    "cumlogsumexp": partial(_running, jnp.logaddexp, -np.inf),
    "cummax": partial(_running, jnp.maximum, -np.inf),
    "cummin": partial(_running, jnp.minimum, np.inf),
    "cumprod": partial(_running, jnp.multiply, 1.0),
    "le_to": lambda params: partial(_ordered, jnp.less_equal),
    "lt_to": lambda params: partial(_ordered, jnp.less),
    "pad": _pad,
}
