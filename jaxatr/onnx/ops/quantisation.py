"""Quantisation operators."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.onnx.ops.casting import FLOAT8, cast
from jaxatr.onnx.ops.convolution import conv, conv_integer, matmul_integer
from jaxatr.onnx.ops.dtypes import NAMES, dtype_of, is_float, name_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, axis_of

RANGES = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
    "int32": (-(2**31), 2**31 - 1),
}


def _broadcastable(parameter: Value, x: Value, axis: int, block_size: int) -> Value:
    """Reshapes scales or zero points so that they broadcast with ``x``."""
    parameter = jnp.asarray(parameter)
    if parameter.size == 1:
        return parameter.reshape(())
    axis = axis_of(axis, x.ndim)
    if block_size:
        repeated = jnp.repeat(parameter, block_size, axis)
        return repeated[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    if parameter.ndim != 1 or parameter.size != x.shape[axis]:
        raise ValueError(
            f"scale: got shape {parameter.shape}, wanted one number for each of {x.shape[axis]}"
        )
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@register("QuantizeLinear", settings=("y_scale",))
def quantize_linear(
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """Quantises ``x / y_scale + y_zero_point``, rounding halves to even (QuantizeLinear-25).

    Args:
      x: array of any shape.
      y_scale: a scalar (per tensor), ``[n]`` (per slice along ``axis``), or of the rank of ``x``
        (per block along ``axis``).
      y_zero_point: array of the shape of ``y_scale`` and the type of the result.
      axis: axis of the slices or blocks.
      block_size: number of slices in a block; 0 for no blocks.
      output_dtype: type number of the result without a zero point; uint8 by default.
      precision: type number of the division; the type of ``x`` by default.
      saturate: whether values out of range of a float8 type are clipped to it; otherwise they
        become infinity or NaN.
    """
    to = NAMES[output_dtype] if output_dtype else "uint8"
    to = to if y_zero_point is None else name_of(y_zero_point.dtype)
    scale = _broadcastable(y_scale, x, axis, block_size)
    wide = dtype_of(precision) if precision else x.dtype
    wide = wide if is_float(wide) else scale.dtype
    # XLA would turn the division by a broadcast scale into a multiplication by its reciprocal,
    # which rounds some halves differently.
    divisor = jax.lax.optimization_barrier(jnp.broadcast_to(scale.astype(wide), x.shape))
    quotient = jnp.asarray(x).astype(wide) / divisor
    zero = None if y_zero_point is None else _broadcastable(y_zero_point, x, axis, block_size)
    if to not in RANGES:
        if to not in FLOAT8 and zero is not None:
            quotient = quotient + zero.astype(wide)
        return cast(quotient, to=to, saturate=saturate)
    lowest, highest = RANGES[to]
    rounded = jnp.clip(jnp.round(quotient.astype("float32")), -(2.0**24), 2.0**24).astype("int32")
    rounded = rounded if zero is None else rounded + zero.astype("int32")
    return _narrowed(jnp.clip(rounded, lowest, highest), to)


def _narrowed(x: Value, to: str) -> Value:
    """Casts int32 to a narrow type, through int8 if it is smaller than a byte."""
    dtype = dtype_of(to)
    return x.astype("int8").astype(dtype) if to.endswith(("t2", "t4")) else x.astype(dtype)


@register("DequantizeLinear", settings=("x_scale",))
def dequantize_linear(
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """Returns ``(x − x_zero_point) · x_scale`` (ONNX DequantizeLinear-25).

    Args:
      x: quantised array of any shape.
      x_scale: a scalar (per tensor), ``[n]`` (per slice along ``axis``), or of the rank of ``x``
        (per block along ``axis``).
      x_zero_point: array of the shape of ``x_scale``.
      axis: axis of the slices or blocks.
      block_size: number of slices in a block; 0 for no blocks.
      output_dtype: type number of the result; the type of ``x_scale`` by default.
    """
    to = dtype_of(output_dtype) if output_dtype else x_scale.dtype
    scale = _broadcastable(x_scale, x, axis, block_size)
    wide = jnp.promote_types(scale.dtype, "float32")
    value = jnp.asarray(x)
    value = value.astype(wide) if is_float(value.dtype) else value.astype("int32")
    if x_zero_point is not None:
        value = value - _broadcastable(x_zero_point, x, axis, block_size).astype(value.dtype)
    return (value.astype(wide) * scale.astype(wide)).astype(to)


@register("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Value) -> tuple[Value, Value, Value]:
    """Quantises to uint8, with a scale that covers x and zero (ONNX DynamicQuantizeLinear-11).

    Returns:
      The quantised array, its scale and its zero point.
    """
    lowest, highest = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    width = highest - lowest
    # By the barrier, the quotient is not a product with 1 / 255, which differs in the last digit.
    scale = (width / jax.lax.optimization_barrier(jnp.full_like(width, 255))).astype(x.dtype)
    scale = jnp.where(scale == 0, jnp.ones_like(scale), scale)  # all zeros, as in ONNX Runtime
    zero = jnp.clip(jnp.round(-lowest / scale), 0, 255).astype("uint8")
    return quantize_linear(x, scale, zero), scale, zero


@register("QLinearMatMul", settings=("a_scale", "b_scale", "y_scale"))
def qlinear_matmul(
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Value:
    """Returns the quantised matrix product of quantised matrices (ONNX QLinearMatMul-21)."""
    product = matmul_integer(a, b, a_zero_point, b_zero_point)
    left = jnp.asarray(a_scale).astype("float32")
    left = left[:, None] if left.ndim == 1 and left.size > 1 else left.reshape(-1)
    right = jnp.asarray(b_scale).astype("float32").reshape(-1)
    result = product.astype("float32") * (left * right)
    scale = jnp.asarray(y_scale)
    zero = jnp.asarray(y_zero_point)
    return quantize_linear(result, scale.astype("float32"), zero, axis=result.ndim - 2)


@register("QLinearConv", settings=("x_scale", "w_scale", "y_scale"), attributes_of=conv)
def qlinear_conv(
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    w: Value,
    w_scale: Value,
    w_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    b: Value | None = None,
    **attributes: Any,
) -> Value:
    """Returns the quantised convolution of quantised tensors, plus int32 bias (QLinearConv-10)."""
    total = conv_integer(x, w, x_zero_point, w_zero_point, **attributes)
    shape = (-1, *(1,) * (x.ndim - 2))
    total = total if b is None else total + jnp.reshape(b, shape)
    scale = jnp.reshape(x_scale, ()) * jnp.reshape(w_scale, shape)
    return quantize_linear(total.astype("float32") * scale, y_scale, y_zero_point)
