"""Reduction operators."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.dtypes import extremes, widened
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, axes_of, axis_of, first_place, known_ints, library


def _reduction(
    operator: str, name: str, function: Callable[..., Any], result: str, *, folds: bool = False
) -> Callable[..., Value]:
    """Registers a reduction and returns its function.

    Args:
      operator: name of the operator.
      name: name of the new function.
      function: function of an array with NumPy's keywords ``axis`` and ``keepdims``.
      result: description of the result for the docstring.
      folds: whether ``function`` computes in NumPy if all operands are NumPy arrays.
    """

    def reduced(
        data: Value, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Value:
        chosen = () if axes is None else known_ints("axes", axes)
        if not chosen:
            # Without axes the function still applies to each element: ReduceSumSquare squares.
            chosen = () if noop_with_empty_axes else tuple(range(data.ndim))
        chosen = axes_of(chosen, data.ndim)
        return function(data, axis=chosen, keepdims=bool(keepdims)).astype(data.dtype)

    reduced.__name__ = reduced.__qualname__ = name
    reduced.__doc__ = f"Returns the {result} over ``axes``, by default all (ONNX {operator})."
    return register(operator, static=("axes",), folds=folds)(reduced)


def _extreme(name: str) -> Callable[..., Any]:
    """Returns the function ``max`` or ``min``, which gives the type's limit for empty input."""

    def function(x: Value, **over: Any) -> Value:
        least, greatest = extremes(x.dtype)
        initial = greatest if name == "min" else least
        return getattr(library(x), name)(x, initial=initial, **over)

    return function


reduce_sum = _reduction(
    "ReduceSum", "reduce_sum", lambda x, **over: library(x).sum(x, **over), "sum", folds=True
)
reduce_prod = _reduction(
    "ReduceProd", "reduce_prod", lambda x, **over: library(x).prod(x, **over), "product", folds=True
)
reduce_mean = _reduction("ReduceMean", "reduce_mean", jnp.mean, "mean")
reduce_max = _reduction("ReduceMax", "reduce_max", _extreme("max"), "maximum", folds=True)
reduce_min = _reduction("ReduceMin", "reduce_min", _extreme("min"), "minimum", folds=True)
reduce_l1 = _reduction(
    "ReduceL1",
    "reduce_l1",
    lambda x, **over: jnp.sum(jnp.abs(x), **over),
    "sum of absolute values",
)
reduce_l2 = _reduction(
    "ReduceL2",
    "reduce_l2",
    lambda x, **over: jnp.sqrt(jnp.sum(jnp.square(widened(x)), **over)),
    "square root of the sum of squares",
)
reduce_sum_square = _reduction(
    "ReduceSumSquare",
    "reduce_sum_square",
    lambda x, **over: jnp.sum(jnp.square(x), **over),
    "sum of squares",
)
reduce_log_sum = _reduction(
    "ReduceLogSum",
    "reduce_log_sum",
    lambda x, **over: jnp.log(jnp.sum(widened(x), **over)),
    "logarithm of the sum",
)
reduce_log_sum_exp = _reduction(
    "ReduceLogSumExp",
    "reduce_log_sum_exp",
    jax.scipy.special.logsumexp,
    "logarithm of the sum of exponentials",
)


@register("ArgMax")
def argmax(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    """Returns the index of the first, or last, maximum along an axis (ONNX ArgMax-13)."""
    return _place(jax.lax.argmax, data, axis, keepdims, select_last_index)


@register("ArgMin")
def argmin(data: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    """Returns the index of the first, or last, minimum along an axis (ONNX ArgMin-13)."""
    return _place(jax.lax.argmin, data, axis, keepdims, select_last_index)


def _place(function, data: Value, axis: int, keepdims: int, last: int) -> Value:
    axis = axis_of(axis, data.ndim)
    index = first_place(function, jnp.flip(data, axis) if last else data, axis)
    index = jnp.expand_dims(index, axis) if keepdims else index
    return (data.shape[axis] - 1 - index if last else index).astype("int64")
