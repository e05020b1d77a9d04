"""Comparison and logical operators."""

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.arithmetic import aligned, broadcasting, register_along
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, library


@register("Equal", settings=("a", "b"), since=7, folds=True)
def equal(a: Value, b: Value) -> Value:
    """Returns a = b, also for strings (ONNX Equal-19)."""
    result = broadcasting(a, b).equal(a, b)
    return np.asarray(result, bool) if a.dtype == object else result


@register("Greater", settings=("a", "b"), since=7, folds=True)
def greater(a: Value, b: Value) -> Value:
    """Returns a > b (ONNX Greater-13)."""
    return broadcasting(a, b).greater(a, b)


@register("Less", settings=("a", "b"), since=7, folds=True)
def less(a: Value, b: Value) -> Value:
    """Returns a < b (ONNX Less-13)."""
    return broadcasting(a, b).less(a, b)


for _operator, _function in {"Equal": equal, "Greater": greater, "Less": less}.items():
    register_along(_operator, _function, settings=("a", "b"))


@register("GreaterOrEqual", settings=("a", "b"), folds=True)
def greater_or_equal(a: Value, b: Value) -> Value:
    """Returns a ≥ b (ONNX GreaterOrEqual-16)."""
    return broadcasting(a, b).greater_equal(a, b)


@register("LessOrEqual", settings=("a", "b"), folds=True)
def less_or_equal(a: Value, b: Value) -> Value:
    """Returns a ≤ b (ONNX LessOrEqual-16)."""
    return broadcasting(a, b).less_equal(a, b)


@register("And", folds=True)
def logical_and(a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    """Returns the logical and (ONNX And-7; the attributes belong to And-1)."""
    return broadcasting(a, b).logical_and(a, aligned(a, b, broadcast, axis))


@register("Or", folds=True)
def logical_or(a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    """Returns the logical or (ONNX Or-7; the attributes belong to Or-1)."""
    return broadcasting(a, b).logical_or(a, aligned(a, b, broadcast, axis))


@register("Xor", folds=True)
def logical_xor(a: Value, b: Value, *, broadcast: int = 0, axis: int | None = None) -> Value:
    """Returns the logical exclusive or (ONNX Xor-7; the attributes belong to Xor-1)."""
    return broadcasting(a, b).logical_xor(a, aligned(a, b, broadcast, axis))


@register("Not", folds=True)
def logical_not(x: Value) -> Value:
    """Returns the logical negation (ONNX Not-1)."""
    return library(x).logical_not(x)


@register("IsNaN")
def is_nan(x: Value) -> Value:
    """Returns whether x is NaN (ONNX IsNaN-20)."""
    return jnp.isnan(x)


@register("IsInf")
def is_inf(x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Returns whether x is infinite and has a detected sign (ONNX IsInf-20)."""
    signs = jnp.where(x > 0, bool(detect_positive), bool(detect_negative))
    return jnp.isinf(x) & signs


@register("Where", folds=True)
def where(condition: Value, x: Value, y: Value) -> Value:
    """Returns x where the condition is true, else y (ONNX Where-16)."""
    return broadcasting(condition, x, y).where(condition, x, y)
