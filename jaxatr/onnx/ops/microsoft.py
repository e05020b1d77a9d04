"""Operators of ``com.microsoft`` that ONNX Runtime's quantisation tools write.

A quantised operator computes in float32 between a dequantisation and a quantisation, as ONNX
Runtime does for all but matrix products, which are exact in int32.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.convolution import matmul_integer
from jaxatr.onnx.ops.functions import leaky_relu, sigmoid, softmax, softmax_from
from jaxatr.onnx.ops.pooling import average_pool
from jaxatr.onnx.ops.quantisation import (
    RANGES,
    dequantize_linear,
    dynamic_quantize_linear,
    quantize_linear,
)
from jaxatr.onnx.ops.recurrence import Options, Weights, run_layer
from jaxatr.onnx.ops.recurrent import lstm_cell
from jaxatr.onnx.ops.registry import register, share_keywords
from jaxatr.onnx.ops.values import Value

MICROSOFT = "com.microsoft"

_SCALES = "x_scale", "y_scale"

register("QuantizeLinear", domain=MICROSOFT, settings=("y_scale",))(quantize_linear)
register("DequantizeLinear", domain=MICROSOFT, settings=("x_scale",))(dequantize_linear)


def _quantised(x: Value, scale: Value, zero: Value | None) -> Value:
    """Quantises to the type of the zero point, uint8 without one."""
    return quantize_linear(x, jnp.asarray(scale, "float32"), zero)


def _requantised(wide: Value, x: Value, scale: Value, zero: Value | None) -> Value:
    """Quantises a result with its zero point, without one to the type of the operand x."""
    return _quantised(wide, scale, np.zeros((), x.dtype) if zero is None else zero)


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
    return _quantised(wide, y_scale, y_zero_point)


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
    return _quantised(jnp.where(condition, left, right), z_scale, z_zero_point)


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
    return _quantised(jnp.concatenate(parts, axis), y_scale, y_zero_point)


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
    return _quantised(jnp.mean(wide, axes, keepdims=True), y_scale, y_zero_point)


@register("QGemm", domain=MICROSOFT, settings=("a_scale", "b_scale", "y_scale"))
def qgemm(
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero_point: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """Returns ``alpha a b + c`` of quantised matrices, float32 without ``y_scale`` (QGemm-1).

    Args:
      a: ``[m, k]``, or ``[k, m]`` with ``transA``.
      a_scale: a scalar.
      a_zero_point: a scalar.
      b: ``[k, n]``, or ``[n, k]`` with ``transB``.
      b_scale: a scalar or ``[n]``.
      b_zero_point: a scalar or ``[n]``.
      c: int32 ``[n]`` or ``[m, n]``, with the scale ``alpha a_scale b_scale``.
      y_scale: scale of the result.
      y_zero_point: zero point of the result.
      alpha: factor of the product.
      transA: whether ``a`` is transposed.
      transB: whether ``b`` is transposed.
    """
    left, right = (jnp.transpose(v) if t else v for v, t in ((a, transA), (b, transB)))
    total = matmul_integer(left, right, a_zero_point, b_zero_point)
    total = total if c is None else total + c
    scale = alpha * jnp.reshape(a_scale, ()) * jnp.asarray(b_scale)
    result = total.astype("float32") * scale
    return result if y_scale is None else _quantised(result, y_scale, y_zero_point)


@register("MatMulIntegerToFloat", domain=MICROSOFT, settings=("a_scale", "b_scale"))
def matmul_integer_to_float(
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """Returns the float product of quantised matrices, plus ``bias`` (MatMulIntegerToFloat-1)."""
    product = matmul_integer(a, b, a_zero_point, b_zero_point).astype("float32")
    result = product * (jnp.asarray(a_scale) * jnp.asarray(b_scale))
    return result if bias is None else result + bias


@register("DynamicQuantizeMatMul", domain=MICROSOFT, settings=("b_scale",))
def dynamic_quantize_matmul(
    a: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """Quantises ``a`` and returns its product with a quantised matrix (DynamicQuantizeMatMul-1)."""
    a, scale, zero = dynamic_quantize_linear(a)
    return matmul_integer_to_float(a, b, scale, b_scale, zero, b_zero_point, bias)


@register("MatMulNBits", domain=MICROSOFT, ignored=("accuracy_level",), settings=("scales",))
def matmul_nbits(
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
) -> Value:
    """Returns the product with a matrix of few bits per number, quantised in blocks (MatMulNBits).

    Args:
      a: ``[…, K]``.
      b: the transposed matrix ``[N, blocks, block_size · bits / 8]``, uint8, lowest bits first.
      scales: ``[N, blocks]``, or flat.
      zero_points: packed like ``b``, each row of blocks in whole bytes; or floats ``[N, blocks]``;
        the middle of the range by default.
      g_idx: must be None; blocks are consecutive.
      bias: ``[N]``.
      K: number of rows of the matrix.
      N: number of columns of the matrix.
      bits: number of bits, 2, 4 or 8.
      block_size: number of rows in a block.
    """
    if g_idx is not None or bits not in (2, 4, 8):
        raise ValueError(f"g_idx, bits: got g_idx or {bits} bits, wanted no g_idx and 2, 4 or 8")
    blocks = -(-K // block_size)
    scales = jnp.reshape(scales, (N, blocks, 1))

    def unpacked(packed: Value, count: int) -> Value:
        shifts = jnp.arange(0, 8, bits, dtype="uint8")
        codes = (jnp.asarray(packed)[..., None] >> shifts) & (2**bits - 1)
        return codes.reshape(*codes.shape[:-2], -1)[..., :count].astype(scales.dtype)

    numbers = unpacked(jnp.reshape(b, (N, blocks, -1)), block_size)
    if zero_points is None:
        middle: Value = jnp.asarray(2 ** (bits - 1), scales.dtype)
    elif zero_points.dtype == np.uint8:
        middle = unpacked(jnp.reshape(zero_points, (N, -1)), blocks)[..., None]
    else:
        middle = jnp.reshape(zero_points, (N, blocks, 1))
    matrix = ((numbers - middle) * scales).reshape(N, -1)[:, :K]
    result = jnp.matmul(a, matrix.T.astype(a.dtype))
    return result if bias is None else result + bias


def _dynamically_rounded(x: Value) -> Value:
    """Returns floats rounded to what a dynamic quantisation keeps of them."""
    return dequantize_linear(*dynamic_quantize_linear(x))


@register(
    "DynamicQuantizeLSTM",
    domain=MICROSOFT,
    settings=("w_scale", "r_scale"),
    weights=("b", "p"),
    optional=("b", "sequence_lens", "initial_h", "initial_c", "p"),
    attributes_of=Options,
)
def dynamic_quantize_lstm(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    w_scale: Value,
    w_zero_point: Value,
    r_scale: Value,
    r_zero_point: Value,
    *,
    activations: tuple[str, ...] = ("Sigmoid", "Tanh", "Tanh"),
    input_forget: int = 0,
    **attributes: Any,
) -> Any:
    """Runs an LSTM with quantised weights (DynamicQuantizeLSTM-1).

    The sequences are quantised as a whole, up to the length of the longest, and so are the hidden
    states before each step.

    All other arguments and the results are those of :func:`jaxatr.onnx.ops.recurrent.lstm`.

    Args:
      w: input weights ``[directions, i, 4h]``, 8 bits.
      r: state weights ``[directions, h, 4h]``, 8 bits.
      w_scale: scale of ``w``, ``[directions]`` or ``[directions, 4h]``.
      w_zero_point: zero point of ``w``, in the shape of ``w_scale``.
      r_scale: scale of ``r``.
      r_zero_point: zero point of ``r``.
    """

    def restored(matrix: Value, scale: Value, zero: Value) -> Value:
        scale, zero = (jnp.reshape(v, (len(matrix), 1, -1)) for v in (scale, zero))
        wide = jnp.asarray(matrix).astype("int32") - zero.astype("int32")
        return jnp.swapaxes(wide.astype("float32") * scale, 1, 2)

    weights = Weights(restored(w, w_scale, w_zero_point), restored(r, r_scale, r_zero_point), b, p)
    states = initial_h, initial_c
    options = Options(activations=activations, **attributes)
    cell, usual = lstm_cell(options, input_forget, _dynamically_rounded), ("",) * 3
    x = jnp.asarray(x)
    if sequence_lens is not None:
        x = jnp.where(jnp.arange(len(x))[:, None, None] < jnp.max(sequence_lens), x, 0)
    rounded = _dynamically_rounded(x)
    return run_layer(cell, None, usual, rounded, weights, states, sequence_lens, options)
