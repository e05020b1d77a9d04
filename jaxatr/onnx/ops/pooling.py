"""Pooling operators."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import kernels
from jaxatr.onnx.ops.dtypes import extremes, widened
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Value, at_least_rank, first_place, known_ints, sized
from jaxatr.onnx.ops.windows import Ints, Windows, windows

MOST_TAPS = 128
"""Maximum number of taps for the kernels; they emit one operation per tap, XLA only one."""


def _pooled(x: Value, window: Windows, empty: Any, combine: Any) -> Value:
    """Reduces each window of the tensor, padded with ``empty``."""
    return jax.lax.reduce_window(
        jnp.asarray(x),
        np.array(empty, x.dtype),
        combine,
        (1, 1, *window.kernel),
        (1, 1, *window.strides),
        [(0, 0), (0, 0), *window.edges],
        window_dilation=(1, 1, *window.dilations),
    )


def _for_kernel(x: Value, window: Windows) -> tuple[Any, ...] | None:
    """Returns the arguments for the pooling of :mod:`jaxatr.kernels`, or None if it does not apply.

    The kernels are channels-last. In a chain with convolutions XLA transposes only the first input
    and the last output.
    """
    if x.ndim != 4 or not jnp.issubdtype(x.dtype, jnp.floating) or set(window.dilations) != {1}:
        return None
    if math.prod(window.kernel) > MOST_TAPS:
        return None
    for size, pair, taps, stride, count in zip(
        x.shape[2:], window.edges, window.kernel, window.strides, window.counts, strict=True
    ):
        fits = 0 <= min(pair) and max(pair) < taps
        if not fits or (size + sum(pair) - taps) // stride + 1 != count:
            return None
    return jnp.moveaxis(jnp.asarray(x), 1, -1), window.kernel, window.strides, window.edges


def _window_of(
    x: Value,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Windows:
    """Returns the windows of a pooling.

    Args:
      x: ``[b, c, …]``.
      kernel_shape: number of taps of a window along each axis.
      strides: stride along each axis; 1 by default.
      dilations: dilation of the windows along each axis; 1 by default.
      pads: padding, ``(start_1, …, start_n, end_1, …, end_n)``; 0 by default.
      auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
      ceil_mode: whether the last window may extend beyond the end.
    """
    at_least_rank("x", x, 3)
    return windows(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)


@register("MaxPool", ignored=("consumed_inputs",), layout="channels", attributes_of=_window_of)
def max_pool(
    x: Value,
    *,
    storage_order: int = 0,
    outputs: int = 1,
    **attributes: Any,
) -> Value | tuple[Value, Value]:
    """Returns the maximum of each window, optionally with its index (ONNX MaxPool-22).

    Args:
      x: ``[b, c, …]``.
      storage_order: order of the indices, row-major (0) or column-major (1).
      outputs: 1 for the maxima alone, 2 for the maxima and their int64 indices in the flattened
        tensor.
      **attributes: those of every pooling (``kernel_shape``, ``strides``, ``dilations``, ``pads``,
        ``auto_pad`` and ``ceil_mode``).
    """
    window = _window_of(x, **attributes)
    arguments = _for_kernel(x, window)
    if arguments is not None:
        largest = jnp.moveaxis(kernels.max_pool(*arguments), -1, 1)
    else:
        largest = _pooled(x, window, extremes(x.dtype)[0], jax.lax.max)
    if outputs == 1:
        return largest
    return largest, _places(x, window, storage_order)


def _taps(window: Windows, spatial: Ints) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the index of each tap along each axis, and which taps are inside the tensor.

    All arrays broadcast to ``[windows…, taps…]``.
    """
    rank = len(spatial)
    grids, inside = [], np.ones((), bool)
    for axis in range(rank):
        at = window.taps(axis)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        grids.append(at.reshape(shape))
        inside = inside & (grids[-1] >= 0) & (grids[-1] < spatial[axis])
    return grids, inside


def _places(x: Value, window: Windows, storage_order: int) -> Value:
    spatial = tuple(x.shape[2:])
    grids, inside = _taps(window, spatial)
    clipped = [np.clip(g, 0, n - 1) for g, n in zip(grids, spatial, strict=True)]
    order = spatial if not storage_order else spatial[::-1]
    steps = clipped if not storage_order else clipped[::-1]
    flat = np.zeros((), np.int64)
    for at, length in zip(steps, order, strict=True):
        flat = flat * length + at
    values = jnp.asarray(x)[(slice(None), slice(None), *clipped)]
    values = jnp.where(inside, values, extremes(x.dtype)[0])
    shape = (*x.shape[:2], *window.counts)
    best = first_place(jax.lax.argmax, values.reshape(*shape, math.prod(window.kernel)), -1)
    flat = np.broadcast_to(flat, (*window.counts, *window.kernel)).reshape(*window.counts, -1)
    chosen = jnp.take_along_axis(
        jnp.broadcast_to(flat, (*shape, flat.shape[-1])), best[..., None], -1
    )
    planes = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * len(spatial))
    return chosen[..., 0] + planes * int(np.prod(spatial))


@register("AveragePool", layout="channels", attributes_of=_window_of)
def average_pool(
    x: Value,
    *,
    count_include_pad: int = 0,
    **attributes: Any,
) -> Value:
    """Returns the mean of each window (ONNX AveragePool-22).

    Padding counts as zeros if ``count_include_pad`` is 1, else not at all.
    """
    window = _window_of(x, **attributes)
    arguments = _for_kernel(x, window)
    if arguments is not None and not any(window.extra):
        pooled = kernels.average_pool(*arguments, include_padding=bool(count_include_pad))
        return jnp.moveaxis(pooled, -1, 1)
    counts = np.ones((), np.float64)
    for axis, length in enumerate(x.shape[2:]):
        at = window.taps(axis)
        before, after = window.pads[axis] if count_include_pad else (0, 0)
        counts = counts[..., None] * ((at >= -before) & (at < length + after)).sum(1)
    return _pooled(x, window, 0, jax.lax.add) / jnp.asarray(counts, x.dtype)


@register("LpPool", attributes_of=_window_of)
def lp_pool(x: Value, *, p: int | float = 2, **attributes: Any) -> Value:
    """Returns the p-norm of each window (ONNX LpPool-22)."""
    window = _window_of(x, **attributes)
    wide = widened(x)
    powers = jnp.power(jnp.abs(wide), p).astype(wide.dtype)
    return jnp.power(_pooled(powers, window, 0, jax.lax.add), 1 / p).astype(x.dtype)


def _space(x: Value) -> Ints:
    at_least_rank("x", x, 2)
    return tuple(range(2, x.ndim))


@register("GlobalAveragePool")
def global_average_pool(x: Value) -> Value:
    """Returns the mean over the spatial axes, kept with size 1 (ONNX GlobalAveragePool-22)."""
    return jnp.mean(x, _space(x), keepdims=True)


@register("GlobalMaxPool")
def global_max_pool(x: Value) -> Value:
    """Returns the maximum over the spatial axes, kept with size 1 (ONNX GlobalMaxPool-22)."""
    return jnp.max(x, _space(x), keepdims=True)


@register("GlobalLpPool")
def global_lp_pool(x: Value, *, p: int | float = 2) -> Value:
    """Returns the p-norm over the spatial axes, kept with size 1 (ONNX GlobalLpPool-22)."""
    powers = jnp.power(jnp.abs(widened(x)), p)
    return jnp.power(jnp.sum(powers, _space(x), keepdims=True), 1 / p).astype(x.dtype)


@register("MaxUnpool", static=("output_shape",))
def max_unpool(
    x: Value,
    indices: Value,
    output_shape: Any = None,
    *,
    kernel_shape: Ints,
    strides: Ints | None = None,
    pads: Ints | None = None,
) -> Value:
    """Writes each maximum back to its index, with zeros elsewhere (ONNX MaxUnpool-22).

    Indices refer to the flattened tensor ``[b, c, …]`` that was pooled. If ``output_shape`` is
    larger, zeros are added at the end of each axis.
    """
    rank = x.ndim - 2
    strides, pads = strides or (1,) * rank, pads or (0,) * (2 * rank)
    pooled = [
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(
            x.shape[2:], strides, kernel_shape, pads[:rank], pads[rank:], strict=True
        )
    ]
    shape = sized((*x.shape[:2], *pooled))
    flat = jnp.zeros(int(np.prod(shape)), x.dtype).at[jnp.reshape(indices, -1)].set(x.reshape(-1))
    result = flat.reshape(shape)
    if output_shape is None:
        return result
    wanted = sized(known_ints("output_shape", output_shape))
    return jnp.pad(result, [(0, w - s) for w, s in zip(wanted, shape, strict=True)])


@register("MaxRoiPool")
def max_roi_pool(x: Value, rois: Value, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> Value:
    """Divides each region into a grid of cells and returns their maxima (ONNX MaxRoiPool-22).

    Args:
      x: ``[b, c, h, w]``.
      rois: ``[r, 5]``: image index, left, top, right, bottom; the bounds are inclusive.
      pooled_shape: numbers of rows and columns of cells.
      spatial_scale: factor that converts ``rois`` to pixels.

    Returns:
      ``[r, c, rows, columns]``; a cell without pixels is 0.
    """
    height, width = x.shape[2:]
    sized((*pooled_shape, height, width))
    rois = jnp.asarray(rois)
    scaled = rois[:, 1:5] * spatial_scale
    # Rounds halves away from zero, as in ONNX Runtime; jnp.round rounds them to even.
    whole = jnp.trunc(scaled)
    whole = whole + jnp.where(jnp.abs(scaled - whole) >= 0.5, jnp.sign(scaled), 0)
    left, top, right, bottom = jnp.moveaxis(whole, 1, 0)
    rows = _cells(top, bottom, pooled_shape[0], height)
    columns = _cells(left, right, pooled_shape[1], width)

    def one(index, rows, columns):
        image = jnp.asarray(x)[index]
        members = rows[:, None, :, None] & columns[None, :, None, :]
        maxima = jnp.max(jnp.where(members, image[:, None, None], -jnp.inf), (-2, -1))
        return jnp.where(members.any((-2, -1)), maxima, 0)

    return jax.vmap(one)(rois[:, 0].astype("int32"), rows, columns)


def _cells(start: Value, end: Value, count: int, length: int) -> Value:
    """Returns which pixels of an axis are in each cell of each region, ``[r, count, length]``."""
    start, extent = start[:, None, None], jnp.maximum(end - start + 1, 1)[:, None, None]
    # XLA would multiply by the reciprocal of the count, which moves bounds that are whole numbers.
    each = extent / jax.lax.optimization_barrier(jnp.full_like(extent, count))
    number, at = jnp.arange(count)[:, None], jnp.arange(length)
    first = jnp.clip(jnp.floor(number * each) + start, 0, length)
    last = jnp.clip(jnp.ceil((number + 1) * each) + start, 0, length)
    return (at >= first) & (at < last)
