"""Sums, means, extrema over axes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, axes_of, axis_of, first_place, known_ints, library


def _reduce(
    function: Callable[..., Any],
    data: Value,
    axes: Known | None,
    keepdims: int,
    noop_with_empty_axes: int,
) -> Value:
    chosen = () if axes is None else known_ints("axes", axes)
    if not chosen:
        # Even where no axis is reduced, a sum of squares squares each element.
        chosen = () if noop_with_empty_axes else tuple(range(data.ndim))
    chosen = axes_of(chosen, data.ndim)
    return function(data, axis=chosen, keepdims=bool(keepdims)).astype(data.dtype)


def _sum(x: Value, **over: Any) -> Value:
    return library(x).sum(x, **over)


@register("ReduceSum", static=("axes",), folds=True)
def reduce_sum(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the sum over axes, all of them by default (ONNX ReduceSum-13)."""
    return _reduce(_sum, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceMean", static=("axes",))
def reduce_mean(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the mean over axes, all of them by default (ONNX ReduceMean-18)."""
    return _reduce(jnp.mean, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceProd", static=("axes",), folds=True)
def reduce_prod(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the product over axes, all of them by default (ONNX ReduceProd-18)."""
    return _reduce(library(data).prod, data, axes, keepdims, noop_with_empty_axes)


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return False
    return jnp.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def _highest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return True
    return jnp.iinfo(dtype).max if dtype.kind in "iu" else np.inf


@register("ReduceMax", static=("axes",), folds=True)
def reduce_max(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the maximum over axes; of nothing, the lowest value (ONNX ReduceMax-20)."""

    def largest(x, **over):
        return library(x).max(x, initial=_lowest(x.dtype), **over)

    return _reduce(largest, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceMin", static=("axes",), folds=True)
def reduce_min(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the minimum over axes; of nothing, the highest value (ONNX ReduceMin-20)."""

    def smallest(x, **over):
        return library(x).min(x, initial=_highest(x.dtype), **over)

    return _reduce(smallest, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceL1", static=("axes",))
def reduce_l1(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the sum of absolute values over axes (ONNX ReduceL1-18)."""
    return reduce_sum(
        jnp.abs(data), axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes
    )


@register("ReduceL2", static=("axes",))
def reduce_l2(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the square root of the sum of squares over axes (ONNX ReduceL2-18)."""

    def norm(x, **over):
        return jnp.sqrt(jnp.sum(jnp.square(x), **over))

    return _reduce(norm, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceSumSquare", static=("axes",))
def reduce_sum_square(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the sum of squares over axes (ONNX ReduceSumSquare-18)."""
    return reduce_sum(
        jnp.square(data), axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes
    )


@register("ReduceLogSum", static=("axes",))
def reduce_log_sum(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the logarithm of the sum over axes (ONNX ReduceLogSum-18)."""

    def log_sum(x, **over):
        return jnp.log(jnp.sum(x, **over))

    return _reduce(log_sum, data, axes, keepdims, noop_with_empty_axes)


@register("ReduceLogSumExp", static=("axes",))
def reduce_log_sum_exp(
    data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    """Returns the logarithm of the sum of exponentials over axes (ONNX ReduceLogSumExp-18)."""
    return _reduce(jax.scipy.special.logsumexp, data, axes, keepdims, noop_with_empty_axes)


@register("ArgMax")
def argmax(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    """Returns the place of the maximum along an axis, the first or the last one (ArgMax-13)."""
    return _place(jax.lax.argmax, data, axis, keepdims, select_last_index)


@register("ArgMin")
def argmin(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    """Returns the place of the minimum along an axis, the first or the last one (ArgMin-13)."""
    return _place(jax.lax.argmin, data, axis, keepdims, select_last_index)


def _place(function, data: Value, axis: int, keepdims: int, last: int) -> Value:
    axis = axis_of(axis, data.ndim)
    found = first_place(function, jnp.flip(data, axis) if last else data, axis)
    found = jnp.expand_dims(found, axis) if keepdims else found
    return (data.shape[axis] - 1 - found if last else found).astype("int64")
