"""Convolution operators, channels-first as in ONNX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import kernels
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, at_least_rank
from jaxatr.onnx.ops.windows import UNSET, Ints, Windows, along, around, check_auto_pad, windows


def convolved(x: Value, w: Value, window: Any, group: int, b: Value | None = None) -> Value:
    """Returns the convolution of ``[b, c, …]`` with ``[f, c/group, …]``, plus a bias ``[f]``."""
    x, w = jnp.asarray(x), jnp.asarray(w)
    if _has_kernel(x, w) and min(min(pair) for pair in window.pads) >= 0:
        result = kernels.convolution(
            jnp.moveaxis(x, 1, -1),
            jnp.moveaxis(w, (0, 1), (-1, -2)),
            stride=along(window.strides),
            padding=around(window.pads),
            dilation=along(window.dilations),
            groups=group,
        )
        return jnp.moveaxis(result if b is None else result + b, -1, 1)
    result = jax.lax.conv_general_dilated(
        x,
        w,
        window.strides,
        window.pads,
        rhs_dilation=window.dilations,
        feature_group_count=group,
    )
    return _with_bias(result, b)


def _has_kernel(x: jax.Array, w: jax.Array) -> bool:
    """Returns whether :mod:`jaxatr.kernels`, which is channels-last, can convolve these arrays.

    In a chain of convolutions XLA transposes only the first input and the last output.
    """
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    return x.ndim in (3, 4) and x.dtype == w.dtype and floating and w.size > 0


def _check(x: Value, w: Value, kernel_shape: Any, pads: Any, auto_pad: str) -> None:
    """Raises ValueError where the attributes contradict the kernel or each other."""
    at_least_rank("x", x, 3)
    if w.ndim != x.ndim:
        raise ValueError(f"w: got shape {w.shape}, wanted {x.ndim} dimensions, as many as x")
    if kernel_shape is not None and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise ValueError(f"kernel_shape: got {kernel_shape}, wanted {w.shape[2:]}, the shape of w")
    check_auto_pad(auto_pad)
    if pads and any(pads) and auto_pad not in UNSET:
        # Readers disagree about which of them counts; ONNX and ONNX Runtime refuse both at once.
        raise ValueError(
            f"pads: got {tuple(pads)} beside auto_pad={auto_pad!r}, wanted one of them"
        )


def _windows(
    x, w, kernel_shape=None, strides=None, dilations=None, pads=None, auto_pad="NOTSET"
) -> Windows:
    _check(x, w, kernel_shape, pads, auto_pad)
    return windows(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)


def _with_bias(result: Value, b: Value | None) -> Value:
    return result if b is None else result + jnp.reshape(b, (-1, *(1,) * (result.ndim - 2)))


EXACT = 1024
"""Number of products of bytes whose sum is exact in float32, at most 2²⁴."""


@register("Conv", weights=("w", "b"), layout="channels")
def conv(
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Value:
    """Returns the convolution (cross-correlation) over any number of axes (ONNX Conv-22).

    Args:
      x: ``[b, c, …]``.
      w: ``[f, c / group, …]``.
      b: ``[f]``.
      kernel_shape: spatial shape of ``w``.
      strides: stride along each axis; 1 by default.
      dilations: dilation of the kernel along each axis; 1 by default.
      pads: zero padding, ``(start_1, …, start_n, end_1, …, end_n)``.
      auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
      group: number of groups that the channels are divided into.

    Returns:
      ``[b, f, …]``.
    """
    window = _windows(x, w, kernel_shape, strides, dilations, pads, auto_pad)
    return convolved(x, w, window, group, b)


@register("ConvTranspose", weights=("w", "b"), layout="channels")
def conv_transpose(
    x: Value,
    w: Value,
    b: Value | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Value:
    """Returns the transposed convolution (ONNX ConvTranspose-22).

    Args:
      x: ``[b, c, …]``.
      w: ``[c, f / group, …]``.
      b: ``[f]``.
      kernel_shape: spatial shape of ``w``.
      strides: stride along each axis; 1 by default.
      dilations: dilation of the kernel along each axis; 1 by default.
      pads: numbers of elements cropped from the result, ``(start_1, …, start_n, end_1, …, end_n)``.
      output_padding: number of elements added at the end of each axis.
      output_shape: spatial shape of the result; determines the padding.
      auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER. With SAME, the length of each axis is
        multiplied by its stride.
      group: number of groups that the channels are divided into.

    Returns:
      ``[b, f, …]``.
    """
    _check(x, w, kernel_shape, pads, auto_pad)
    rank, spatial = x.ndim - 2, x.shape[2:]
    strides, dilations = strides or (1,) * rank, dilations or (1,) * rank
    more = output_padding or (0,) * rank
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [s * (n - 1) + o + r for s, n, o, r in zip(strides, spatial, more, reach, strict=True)]
    if output_shape is not None:
        output_shape = output_shape[-rank:]
    elif auto_pad.startswith("SAME"):
        output_shape = tuple(n * s for n, s in zip(spatial, strides, strict=True))
    if output_shape is None:
        cut = pads or (0,) * (2 * rank)
        pairs = list(zip(cut[:rank], cut[rank:], strict=True))
    else:
        spare = [f - o for f, o in zip(full, output_shape, strict=True)]
        # Of an odd number, SAME_UPPER cuts more at the end. What lacks is added there in any case.
        odd = 0 if auto_pad == "SAME_UPPER" else 1
        starts = [(max(s, 0) + odd) // 2 for s in spare]
        pairs = [(before, s - before) for before, s in zip(starts, spare, strict=True)]
    x, w = jnp.asarray(x), jnp.asarray(w)
    small = min(map(min, pairs)) >= 0 and all(m < s for m, s in zip(more, strides, strict=True))
    if _has_kernel(x, w) and small:
        result = kernels.transposed_convolution(
            jnp.moveaxis(x, 1, -1),
            jnp.moveaxis(w, (0, 1), (-1, -2)),
            stride=along(strides),
            padding=around(pairs),
            output_padding=along(more),
            dilation=along(dilations),
            groups=group,
        )
        return jnp.moveaxis(result if b is None else result + b, -1, 1)
    # This is a convolution of the dilated input with the flipped kernel.
    spread = [
        (r - 1 - before, r - 1 - after + o)
        for r, (before, after), o in zip(reach, pairs, more, strict=True)
    ]
    kernel = jnp.reshape(w, (group, -1, *w.shape[1:]))
    kernel = jnp.swapaxes(kernel, 1, 2).reshape(-1, w.shape[0] // group, *w.shape[2:])
    result = jax.lax.conv_general_dilated(
        x,
        jnp.flip(kernel, tuple(range(2, kernel.ndim))),
        (1,) * rank,
        spread,
        lhs_dilation=strides,
        rhs_dilation=dilations,
        feature_group_count=group,
    )
    return _with_bias(result, b)


def _centred(x: Value, zero: Value | None, axis: int | None = None) -> Value:
    """Subtracts the zero point from quantised numbers, in int32."""
    wide = jnp.asarray(x).astype("int32")
    if zero is None:
        return wide
    zero = jnp.asarray(zero).astype("int32")
    if axis is not None and zero.ndim == 1:
        zero = zero.reshape([-1 if i == axis else 1 for i in range(wide.ndim)])
    return wide - zero


@register("ConvInteger", attributes_of=conv)
def conv_integer(
    x: Value,
    w: Value,
    x_zero_point: Value | None = None,
    w_zero_point: Value | None = None,
    *,
    group: int = 1,
    **window: Any,
) -> Value:
    """Returns the int32 convolution of integers, padded with the zero point (ConvInteger-10)."""
    left, right = _centred(x, x_zero_point), _centred(w, w_zero_point, 0)
    return convolved(left, right, _windows(x, w, **window), group)


@register("MatMulInteger")
def matmul_integer(
    a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """Returns the int32 matrix product of integers (ONNX MatMulInteger-10).

    XLA multiplies matrices of integers in a plain loop, and of floats in a tuned one. The product
    of bytes is computed in float32: numbers from −128 to 127, sums of at most 1,024 products, which
    are exact there, and the zero points afterwards.
    """
    if not {a.dtype.name, b.dtype.name} <= {"int8", "uint8"} or min(a.ndim, b.ndim) < 2:
        left = _centred(a, a_zero_point, a.ndim - 2)
        return jnp.matmul(left, _centred(b, b_zero_point, b.ndim - 1))
    (left, left_zero), (right, right_zero) = (
        _around_zero(a, a_zero_point, -2),
        _around_zero(b, b_zero_point, -1),
    )
    depth, total = a.shape[-1], jnp.zeros((), "int32")
    for start in range(0, depth, EXACT) or (0,):
        part = slice(start, start + EXACT)
        factors = (one.astype("float32") for one in (left[..., part], right[..., part, :]))
        product = jnp.matmul(*factors, precision=jax.lax.Precision.HIGHEST)
        total = total + product.astype("int32")
    total = total - left.sum(-1, keepdims=True, dtype="int32") * right_zero
    total = total - left_zero * right.sum(-2, keepdims=True, dtype="int32")
    return total + depth * left_zero * right_zero


def _around_zero(x: Value, zero: Value | None, axis: int) -> tuple[Value, Value]:
    """Returns bytes from −128 to 127 and their zero point, in int32, one for each slice of an axis.

    Those of uint8 are moved by 128, as their zero points are.
    """
    moved = 128 if x.dtype == "uint8" else 0
    zero = jnp.asarray(0 if zero is None else zero).astype("int32") - moved
    if zero.ndim == 1:
        zero = zero[:, None] if axis == -2 else zero
    return jnp.asarray(x).astype("int32") - moved, zero


@register("CausalConvWithState")
def causal_conv_with_state(
    x: Value,
    weight: Value,
    bias: Value | None = None,
    past_state: Value | None = None,
    *,
    activation: str = "none",
) -> tuple[Value, Value]:
    """Returns a causal depthwise convolution over time and its state (CausalConvWithState-27).

    Args:
      x: ``[b, c, t]``.
      weight: ``[c, 1, k]``.
      bias: ``[c]``.
      past_state: the elements before ``x``, ``[b, c, k - 1]``; zeros by default.
      activation: none, silu or swish.

    Returns:
      The result ``[b, c, t]``, and the next ``past_state``: the last elements ``[b, c, k - 1]``.
    """
    taps = weight.shape[-1]
    past = jnp.zeros((*x.shape[:2], taps - 1), x.dtype) if past_state is None else past_state
    extended = jnp.concatenate([past, x], -1)
    window = windows(extended.shape[2:], (taps,), None, None, None, "VALID")
    result = _with_bias(convolved(extended, weight, window, x.shape[1]), bias)
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation: got {activation!r}, wanted none, silu or swish")
    result = result if activation == "none" else jax.nn.silu(result)
    return result, extended[..., extended.shape[-1] - (taps - 1) :]


@register("DeformConv", weights=("w", "b"))
def deform_conv(
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None = None,
    mask: Value | None = None,
    *,
    kernel_shape: Ints | None = None,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    group: int = 1,
    offset_group: int = 1,
) -> Value:
    """Returns the deformable convolution, with an offset for each tap (ONNX DeformConv-22).

    Args:
      x: ``[b, c, h, w]``.
      w: ``[f, c / group, kh, kw]``.
      offset: row and column offset of each tap, ``[b, offset_group · kh · kw · 2, oh, ow]``.
      b: ``[f]``.
      mask: factor of each tap, ``[b, offset_group · kh · kw, oh, ow]``.
      kernel_shape: spatial shape of ``w``.
      strides: stride along each axis; 1 by default.
      dilations: dilation of the kernel along each axis; 1 by default.
      pads: zero padding, ``(start_1, …, start_n, end_1, …, end_n)``.
      group: number of groups that the channels are divided into.
      offset_group: number of groups of channels that share offsets.

    Returns:
      ``[b, f, oh, ow]``.
    """
    if x.ndim != 4:
        raise ValueError(f"x: got shape {x.shape}, wanted [b, c, h, w]")
    window = _windows(x, w, kernel_shape, strides, dilations, pads, "NOTSET")
    n, channels = x.shape[:2]
    taps, out = int(np.prod(window.kernel)), window.counts
    moves = jnp.reshape(offset, (n, offset_group, taps, 2, *out))
    positions = []
    for axis in range(2):
        start = np.arange(out[axis]) * window.strides[axis] - window.pads[axis][0]
        tap = np.indices(window.kernel)[axis].reshape(-1) * window.dilations[axis]
        start = start.reshape((-1, 1) if axis == 0 else (1, -1))
        positions.append(moves[:, :, :, axis] + (tap[:, None, None] + start).astype(x.dtype))
    image = jnp.reshape(x, (n, offset_group, channels // offset_group, *x.shape[2:]))
    taken = jax.vmap(jax.vmap(_bilinear))(image, positions[0], positions[1])
    if mask is not None:
        taken = taken * jnp.reshape(mask, (n, offset_group, 1, taps, *out))
    taken = taken.reshape(n, group, channels // group, taps, *out)
    kernel = jnp.reshape(w, (group, -1, w.shape[1], taps))
    result = jnp.einsum("ngctyx,gfct->ngfyx", taken, kernel).reshape(n, w.shape[0], *out)
    return _with_bias(result, b)


def _bilinear(image: Value, y: Value, x: Value) -> Value:
    """Samples an image ``[c, h, w]`` bilinearly at ``y, x``: ``[c, …]``, zero outside the image."""
    height, width = image.shape[1:]
    top, left = jnp.floor(y), jnp.floor(x)
    total = 0.0
    for row, row_share in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, column_share in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            i = jnp.clip(row, 0, height - 1).astype("int32")
            j = jnp.clip(column, 0, width - 1).astype("int32")
            share = jnp.where(inside, row_share * column_share, 0)
            total = total + image[:, i, j] * share
    return jnp.asarray(total)
