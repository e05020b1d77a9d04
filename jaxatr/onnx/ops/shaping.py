"""Operators that read or change shapes, or move elements."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import (
    Known,
    Value,
    axes_of,
    axis_of,
    known,
    known_int,
    known_ints,
    library,
    sized,
)


@register("Shape", folds=True, shape_only=True)
def shape(data: Value, *, start: int = 0, end: int | None = None) -> Value:
    """Returns the dimensions from ``start`` to ``end`` as a NumPy array (ONNX Shape-15).

    Raises:
      ValueError: a dimension is symbolic.
    """
    return np.array(_numbers(np.shape(data)[start:end]), np.int64)


@register("Size", folds=True, shape_only=True)
def size(data: Value) -> Value:
    """Returns the number of elements as a NumPy array (ONNX Size-13).

    Raises:
      ValueError: a dimension is symbolic.
    """
    return np.array(math.prod(_numbers(np.shape(data))), np.int64)


def _numbers(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if any(not isinstance(dimension, int) for dimension in shape):
        raise ValueError(
            f"shape: got {shape}, wanted numbers: export with dynamic_batch=False "
            "(`convert export --batch=N`)"
        )
    return shape


@register("Identity", folds=True)
def identity(x: Any) -> Any:
    """Returns its operand: a tensor, a sequence or an optional (ONNX Identity-16)."""
    return x


@register("Reshape", static=("shape",), folds=True, ignored=("consumed_inputs",))
def reshape(data: Value, shape: Known, *, allowzero: int = 0) -> Value:
    """Reshapes a tensor (ONNX Reshape-14).

    In ``shape``, 0 keeps a dimension (unless ``allowzero``), and −1 is inferred from the others.
    """
    wanted = list(known_ints("shape", shape))
    if not allowzero:
        wanted = [data.shape[i] if s == 0 and i < data.ndim else s for i, s in enumerate(wanted)]
    return library(data).reshape(data, wanted)


@register("Flatten", folds=True)
def flatten(x: Value, *, axis: int = 1) -> Value:
    """Reshapes to a matrix; the axes before ``axis`` become the rows (ONNX Flatten-13)."""
    axis = axis + x.ndim if axis < 0 else axis
    if not 0 <= axis <= x.ndim:
        raise ValueError(f"axis: got {axis}, wanted 0 to {x.ndim}")
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@register("Squeeze", static=("axes",), folds=True)
def squeeze(data: Value, axes: Known | None = None) -> Value:
    """Removes the given axes of size 1, or all such axes (ONNX Squeeze-13)."""
    if axes is None:
        return data.squeeze()
    return data.squeeze(axes_of(known_ints("axes", axes), data.ndim))


@register("Unsqueeze", static=("axes",), folds=True)
def unsqueeze(data: Value, axes: Known) -> Value:
    """Inserts axes of size 1 at the given positions of the result (ONNX Unsqueeze-13)."""
    positions = known_ints("axes", axes)
    if data.ndim + len(positions) > 32:
        raise ValueError(
            f"axes: got {len(positions)} new axes for rank {data.ndim}, wanted at most 32 in total"
        )
    return library(data).expand_dims(data, axes_of(positions, data.ndim + len(positions)))


@register("Transpose", folds=True)
def transpose(data: Value, *, perm: tuple[int, ...] | None = None) -> Value:
    """Permutes the axes, by default in reverse order (ONNX Transpose-13)."""
    return library(data).transpose(data, perm)


@register("Expand", static=("shape",), folds=True)
def expand(x: Value, shape: Known) -> Value:
    """Broadcasts a tensor to its common shape with ``shape`` (ONNX Expand-13)."""
    wanted = jnp.broadcast_shapes(x.shape, sized(known_ints("shape", shape)))
    return library(x).broadcast_to(x, sized(wanted))  # a view in NumPy


@register("Tile", since=6, static=("repeats",), folds=True)
def tile(x: Value, repeats: Known) -> Value:
    """Repeats a tensor along each axis (ONNX Tile-13)."""
    times = known_ints("repeats", repeats)
    if len(times) != x.ndim:
        raise ValueError(f"repeats: got {times}, wanted {x.ndim} numbers")
    shape = [t * s for t, s in zip(times, x.shape, strict=True)]
    return library(x, shape=shape).tile(x, times)


@register("Tile", static=("tiles", "axis"), folds=True)
def tile_along(x: Value, tiles: Known, axis: Known) -> Value:
    """Repeats a tensor along one axis (ONNX Tile-1)."""
    times = int(known("tiles", tiles).reshape(()))
    along = axis_of(int(known("axis", axis).reshape(())), x.ndim)
    return tile(x, [times if i == along else 1 for i in range(x.ndim)])


@register("Concat", folds=True)
def concat(*values: Value, axis: int = 1) -> Value:
    """Concatenates tensors along an axis (ONNX Concat-13)."""
    lib = library(*values, shape=(sum(np.size(value) for value in values),))
    if lib is jnp and values[0].ndim == 4 and axis_of(axis, 4) == 1:
        # Images between convolutions are channels-last, and XLA does not move transpositions
        # through a concatenation: concatenating channels-first would transpose twice.
        last = [jnp.moveaxis(jnp.asarray(value), 1, -1) for value in values]
        return jnp.moveaxis(jnp.concatenate(last, -1), -1, 1)
    return lib.concatenate(values, axis=axis)


@register("Split", static=("split",), folds=True, counted=True)
def split(
    x: Value,
    split: Known | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> Value | tuple[Value, ...]:
    """Splits a tensor along an axis into pieces of the sizes ``split`` (ONNX Split-18).

    By default all pieces have the same size, except that the last may be smaller.
    """
    axis = axis_of(axis, x.ndim)
    length = x.shape[axis]
    if num_outputs not in (None, outputs):
        raise ValueError(f"num_outputs: got {num_outputs}, but the node has {outputs} outputs")
    if split is None:
        each = -(-length // outputs)
        sizes = [min(each, max(0, length - i * each)) for i in range(outputs)]
    else:
        sizes = known_ints("split", split)
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ValueError(f"split: got {tuple(sizes)}, wanted sizes that sum to {length}")
    if len(sizes) != outputs:
        raise ValueError(f"split: got {len(sizes)} sizes, wanted one for each of {outputs} outputs")
    pieces = library(x).split(x, [int(p) for p in np.cumsum(sizes)[:-1]], axis=axis)
    return tuple(pieces) if outputs > 1 else pieces[0]


def sliced(x: Value, starts: Any, ends: Any, axes: Any, steps: Any) -> Value:
    """Returns a slice, with starts and ends clamped as ONNX specifies."""
    cut = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = x.shape[axis]
        if step == 0:
            raise ValueError("steps: got 0, wanted a nonzero step")
        lowest, highest = (0, length) if step > 0 else (-1, length - 1)
        start, end = (p + length if p < 0 else p for p in (start, end))
        start, end = (min(max(p, lowest), highest) for p in (start, end))
        start = max(start, 0)
        cut[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(cut)]


@register("Slice", static=("starts", "ends", "axes", "steps"), folds=True)
def slice_(
    x: Value,
    starts: Known,
    ends: Known,
    axes: Known | None = None,
    steps: Known | None = None,
) -> Value:
    """Returns the elements from ``starts`` to ``ends`` (exclusive) along ``axes`` (Slice-13)."""
    first, last = known_ints("starts", starts), known_ints("ends", ends)
    along = range(len(first)) if axes is None else known_ints("axes", axes)
    by = (1,) * len(first) if steps is None else known_ints("steps", steps)
    if not len(first) == len(last) == len(along) == len(by):
        raise ValueError("starts, ends, axes, steps: wanted the same number of values in each")
    return sliced(x, first, last, axes_of(along, x.ndim), by)


@register("Pad", static=("pads", "axes"), since=11)
def pad(
    data: Value,
    pads: Known,
    value: Value | float | None = None,
    axes: Known | None = None,
    *,
    mode: str = "constant",
) -> Value:
    """Pads a tensor, or crops it where pads are negative (ONNX Pad-21).

    Args:
      data: array of any shape.
      pads: numbers of elements to add, ``(start_1, …, start_n, end_1, …, end_n)``.
      value: the constant, 0 by default.
      axes: axes to which ``pads`` refers; all by default.
      mode: constant, reflect, edge or wrap.
    """
    along = range(data.ndim) if axes is None else known_ints("axes", axes)
    along = axes_of(along, data.ndim)
    amounts = known_ints("pads", pads)
    if len(amounts) != 2 * len(along):
        raise ValueError(f"pads: got {len(amounts)} numbers, wanted {2 * len(along)}")
    cut, widths = [slice(None)] * data.ndim, [(0, 0)] * data.ndim
    for axis, before, after in zip(along, amounts, amounts[len(along) :], strict=False):
        cut[axis] = slice(max(-before, 0), data.shape[axis] - max(-after, 0))
        widths[axis] = (max(before, 0), max(after, 0))
    data = data[tuple(cut)]
    sized(s + b + a for s, (b, a) in zip(data.shape, widths, strict=True))
    if mode == "constant":
        fill = jnp.asarray(0 if value is None else value, data.dtype).reshape(())
        return jnp.pad(data, widths, constant_values=fill)
    if mode not in ("reflect", "edge", "wrap"):
        raise ValueError(f"mode: got {mode!r}, wanted constant, reflect, edge or wrap")
    return jnp.pad(data, widths, mode=mode)


@register("Pad", since=2)
def pad_by(
    data: Value, *, pads: tuple[int, ...], value: float = 0.0, mode: str = "constant"
) -> Value:
    """Applies :func:`pad`, with attributes instead of operands (ONNX Pad-2)."""
    return pad(data, pads, value, mode=mode)


@register("Pad", since=1)
def pad_paddings(
    data: Value, *, paddings: tuple[int, ...], value: float = 0.0, mode: str = "constant"
) -> Value:
    """Applies :func:`pad`, with attributes instead of operands (ONNX Pad-1)."""
    return pad(data, paddings, value, mode=mode)


@register("ConstantOfShape", static=("shape",), folds=True)
def constant_of_shape(shape: Known, *, value: Value | None = None) -> Value:
    """Returns a tensor filled with one value, float32 zero by default (ONNX ConstantOfShape-20).

    The tensor is a broadcast view of one element.
    """
    filling = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return np.broadcast_to(filling.reshape(()), sized(known_ints("shape", shape)))


@register("Range", static=("start", "limit", "delta"), folds=True, ignored=("stash_type",))
def range_(start: Known, limit: Known, delta: Known) -> Value:
    """Returns the numbers from ``start`` to ``limit`` (exclusive), ``delta`` apart (Range-11)."""
    first, last, step = (
        known(name, value).reshape(())
        for name, value in (("start", start), ("limit", limit), ("delta", delta))
    )
    if step == 0:
        raise ValueError("delta: got 0, wanted a nonzero step")
    wide = np.float64 if first.dtype.kind not in "iu" else object
    count = max(0, int(np.ceil((last.astype(wide) - first.astype(wide)) / step.astype(wide))))
    lib = library(shape=(count,))
    return (first + lib.arange(count).astype(first.dtype) * step).astype(first.dtype)


@register("EyeLike", dtypes=("dtype",))
def eye_like(x: Value, *, dtype: str | None = None, k: int = 0) -> Value:
    """Returns ones on the ``k``-th diagonal, in the shape of ``x`` (ONNX EyeLike-22)."""
    rows, columns = x.shape
    return jnp.eye(rows, columns, k=k, dtype=x.dtype if dtype is None else dtype_of(dtype))


@register("Trilu", static=("k",))
def trilu(x: Value, k: Known | None = None, *, upper: int = 1) -> Value:
    """Returns the upper or lower triangle of each matrix, with zeros elsewhere (ONNX Trilu-14)."""
    diagonal = 0 if k is None else known_int("k", k)
    limit = x.shape[-1] + x.shape[-2]
    return (jnp.triu if upper else jnp.tril)(x, min(max(diagonal, -limit), limit))


@register("DepthToSpace")
def depth_to_space(x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Rearranges channels ``[n, c b², h, w]`` into blocks of pixels ``[n, c, h b, w b]``.

    The channel axis is ordered (block, channel) in ``mode`` DCR, and (channel, block) in CRD (ONNX
    DepthToSpace-13).
    """
    n, depth, h, w = x.shape
    c = depth // blocksize**2
    if mode == "DCR":
        blocks = x.reshape(n, blocksize, blocksize, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c, blocksize, blocksize, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c, h * blocksize, w * blocksize)


@register("SpaceToDepth")
def space_to_depth(x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Rearranges blocks of pixels ``[n, c, h, w]`` into channels ``[n, c b², h/b, w/b]``.

    This is the inverse of :func:`depth_to_space` (ONNX SpaceToDepth-13).
    """
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@register("CenterCropPad", static=("shape",))
def center_crop_pad(x: Value, shape: Known, *, axes: tuple[int, ...] | None = None) -> Value:
    """Crops or zero-pads a tensor around its centre to a shape (ONNX CenterCropPad-18)."""
    wanted = known_ints("shape", shape)
    along = axes_of(range(x.ndim) if axes is None else axes, x.ndim)
    if len(wanted) != len(along):
        raise ValueError(f"shape: got {wanted}, wanted {len(along)} numbers")
    for axis, length in zip(along, wanted, strict=True):
        spare = x.shape[axis] - length
        if spare > 0:
            x = sliced(x, [spare // 2], [spare // 2 + length], [axis], [1])
        elif spare < 0:
            x = pad(x, (-spare // 2, -spare - (-spare // 2)), axes=(axis,))
    return x
