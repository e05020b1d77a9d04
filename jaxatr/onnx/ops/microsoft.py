"""Operators of ``com.microsoft`` that ONNX Runtime's quantisation tools write, element by element.

A quantised operator computes in float32 between a dequantisation and a quantisation, as ONNX
Runtime does for all but matrix products (:mod:`jaxatr.onnx.ops.microsoft_products`).
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.functions import leaky_relu, sigmoid, softmax, softmax_from
from jaxatr.onnx.ops.pooling import average_pool
from jaxatr.onnx.ops.quantisation import (
    RANGES,
    dequantize_linear,
    quantize_linear,
)
from jaxatr.onnx.ops.registry import register, share_keywords
from jaxatr.onnx.ops.values import Value

MICROSOFT = "com.microsoft"

_SCALES = "x_scale", "y_scale"

register("QuantizeLinear", domain=MICROSOFT, settings=("y_scale",))(quantize_linear)
register("DequantizeLinear", domain=MICROSOFT, settings=("x_scale",))(dequantize_linear)


def quantise(x: Value, scale: Value, zero: Value | None) -> Value:
    """Quantises to the type of the zero point, uint8 without one."""
    return quantize_linear(x, jnp.asarray(scale, "float32"), zero)


def _requantised(wide: Value, x: Value, scale: Value, zero: Value | None) -> Value:
    """Quantises a result with its zero point, without one to the type of the operand x."""
    return quantise(wide, scale, np.zeros((), x.dtype) if zero is None else zero)


def _published(name: str, quantised: Any, result: str, **facts: Any) -> Any:
    """Names and registers a quantised form of a function."""
    quantised.__name__ = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    quantised.__qualname__ = quantised.__name__
    quantised.__doc__ = f"Returns the quantised {result} ({name}-1)."
    return register(name, domain=MICROSOFT, **facts)(quantised)


def _unary(
    name: str,
    function: Callable[..., Value],
    result: str,
    requantised: Callable[..., Value] = _requantised,
) -> Any:
    """Registers a quantised operator of one operand, with the function's attributes."""

    def quantised(
        x: Value,
        x_scale: Value,
        x_zero_point: Value | None,
        y_scale: Value,
        y_zero_point: Value | None = None,
        **attributes: Any,
    ) -> Value:
        wide = function(dequantize_linear(x, x_scale, x_zero_point), **attributes)
        return requantised(wide, x, y_scale, y_zero_point)

    facts = {"settings": _SCALES, "optional": ("x_zero_point",), "attributes_of": function}
    return _published(name, quantised, result, **facts)


def _rounded_with_zero(wide: Value, x: Value, zero: Value | None) -> Value:
    """Adds a zero point and rounds, halves to even, as ONNX Runtime's kernels for sums do.

    ``QuantizeLinear`` rounds first, so that halves beside an odd zero point differ by one.
    """
    dtype = x.dtype if zero is None else jnp.asarray(zero).dtype
    shifted = wide if zero is None else wide + jnp.asarray(zero).astype("float32")
    lowest, highest = RANGES[dtype.name]
    return jnp.clip(jnp.round(shifted), lowest, highest).astype(dtype)


def _whole(scale: Value, shape: tuple[int, ...]) -> Value:
    """Broadcasts a divisor, by which XLA then divides instead of multiplying by its reciprocal."""
    return jax.lax.optimization_barrier(jnp.broadcast_to(jnp.reshape(scale, ()), shape))


def _binary(name: str, function: Callable[..., Value], result: str) -> Any:
    """Registers a quantised operator of two operands.

    The function takes both, less their zero points, and the three scales, and returns the result in
    units of its scale: a division after the operation would miss halves.
    """

    def quantised(
        a: Value,
        a_scale: Value,
        a_zero_point: Value | None,
        b: Value,
        b_scale: Value,
        b_zero_point: Value | None,
        c_scale: Value,
        c_zero_point: Value | None = None,
    ) -> Value:
        left, right = (
            dequantize_linear(x, np.ones((), np.float32), zero)
            for x, zero in ((a, a_zero_point), (b, b_zero_point))
        )
        wide = function(left, right, a_scale, b_scale, c_scale)
        return _rounded_with_zero(wide, a, c_zero_point)

    scales, zeros = ("a_scale", "b_scale", "c_scale"), ("a_zero_point", "b_zero_point")
    return _published(name, quantised, result, settings=scales, optional=zeros)


def _sum(a: Value, b: Value, a_scale: Value, b_scale: Value, c_scale: Value) -> Value:
    return a * (a_scale / _whole(c_scale, ())) + b * (b_scale / _whole(c_scale, ()))


def _product(a: Value, b: Value, a_scale: Value, b_scale: Value, c_scale: Value) -> Value:
    return a * b * (a_scale * b_scale / _whole(c_scale, ()))


qlinear_add = _binary("QLinearAdd", _sum, "sum of quantised arrays")
qlinear_mul = _binary("QLinearMul", _product, "product of quantised arrays")
qlinear_sigmoid = _unary("QLinearSigmoid", sigmoid, "logistic function of a quantised array")
qlinear_leaky_relu = _unary("QLinearLeakyRelu", leaky_relu, "leaky ReLU of a quantised array")


@register(
    "QLinearSoftmax",
    domain=MICROSOFT,
    settings=("x_scale", "y_scale"),
    optional=("x_zero_point",),
    renamed=(("opset", "softmax_opset"),),
)
def qlinear_softmax(
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value,
    *,
    axis: int = -1,
    softmax_opset: int = 13,
) -> Value:
    """Returns the quantised softmax of a quantised array (QLinearSoftmax-1).

    Args:
      x: quantised array.
      x_scale: a scalar.
      x_zero_point: a scalar.
      y_scale: scale of the result.
      y_zero_point: zero point of the result.
      axis: axis of the softmax.
      softmax_opset: version of ONNX's softmax; before 13 it is taken over all axes from
        ``axis`` on.
    """
    function = softmax if softmax_opset >= 13 else softmax_from
    wide = function(dequantize_linear(x, x_scale, x_zero_point), axis=axis)
    return quantise(wide, y_scale, y_zero_point)


@register("QLinearWhere", domain=MICROSOFT, settings=("x_scale", "y_scale", "z_scale"))
def qlinear_where(
    condition: Value,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    y: Value,
    y_scale: Value,
    y_zero_point: Value,
    z_scale: Value,
    z_zero_point: Value,
) -> Value:
    """Returns x where the condition is true, else y, quantised anew (QLinearWhere-1)."""
    left = dequantize_linear(x, x_scale, x_zero_point)
    right = dequantize_linear(y, y_scale, y_zero_point)
    return quantise(jnp.where(condition, left, right), z_scale, z_zero_point)


@register("QLinearConcat", domain=MICROSOFT, settings=("y_scale",))
def qlinear_concat(y_scale: Value, y_zero_point: Value, *values: Value, axis: int) -> Value:
    """Concatenates quantised arrays, quantised anew (QLinearConcat-1).

    Args:
      y_scale: scale of the result.
      y_zero_point: zero point of the result.
      *values: an array, its scale and its zero point, for each array.
      axis: axis along which to concatenate.
    """
    parts = [dequantize_linear(*values[i : i + 3]) for i in range(0, len(values), 3)]
    return quantise(jnp.concatenate(parts, axis), y_scale, y_zero_point)


def _average_pool(x: Value, *, channels_last: int = 0, **attributes: Any) -> Value:
    pooled = average_pool(jnp.moveaxis(x, -1, 1) if channels_last else x, **attributes)
    return jnp.moveaxis(pooled, 1, -1) if channels_last else pooled


share_keywords(_average_pool, average_pool)
qlinear_average_pool = _unary(
    "QLinearAveragePool",
    _average_pool,
    "mean of each window of a quantised array",
    lambda wide, x, scale, zero: _rounded_with_zero(wide / _whole(scale, wide.shape), x, zero),
)


@register("QLinearGlobalAveragePool", domain=MICROSOFT, settings=("x_scale", "y_scale"))
def qlinear_global_average_pool(
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    *,
    channels_last: int = 0,
) -> Value:
    """Returns the quantised mean of each channel (QLinearGlobalAveragePool-1)."""
    wide = dequantize_linear(x, x_scale, x_zero_point)
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return quantise(jnp.mean(wide, axes, keepdims=True), y_scale, y_zero_point)
