"""Quantised matrix products and recurrent layers of ``com.microsoft``.

The products are exact in int32, as ONNX Runtime's are.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.convolution import matmul_integer
from jaxatr.onnx.ops.microsoft import MICROSOFT, quantise
from jaxatr.onnx.ops.quantisation import dequantize_linear, dynamic_quantize_linear
from jaxatr.onnx.ops.recurrence import Options, Weights, run_layer
from jaxatr.onnx.ops.recurrent import lstm_cell
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value


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
    return result if y_scale is None else quantise(result, y_scale, y_zero_point)


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
