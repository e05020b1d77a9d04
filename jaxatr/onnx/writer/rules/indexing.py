"""Rules for primitives that read or replace elements at indices.

They are ``gather``, ``dynamic_slice`` and ``dynamic_update_slice``; those of ``scatter`` have a
module of their own.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxatr.onnx.writer.dimensions import is_static
from jaxatr.onnx.writer.graph import Dim, Shape, Unsupported
from jaxatr.onnx.writer.rules.shaping import counted, sliced
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    rule,
)
from jaxatr.typing import Array


@rule("dynamic_slice")
def _dynamic_slice(t: Translator, equation: Equation) -> Tensor:
    starts = dict(enumerate(equation.inputs[1:]))
    return _part(t, t.tensor(t.read(equation, 0)), starts, equation.params["slice_sizes"])


@rule("dynamic_update_slice")
def _dynamic_update_slice(t: Translator, equation: Equation) -> Tensor:
    operand, update = (t.tensor(t.read(equation, place)) for place in (0, 1))
    shape, sizes = (equation.in_avals[place].shape for place in (0, 1))
    changed: Tensor | None = None
    for axis in (axis for axis in range(len(shape)) if sizes[axis] != shape[axis]):
        length, size = shape[axis], sizes[axis]
        start = _clipped(t, t.cast(equation.inputs[2 + axis], np.int64), [length - size])
        offsets = t.pointwise("Sub", counted(t, length), start)
        # Elements of the operand that do not change read any element of the update.
        nearest = _clipped(t, offsets, [size - 1])
        update = t.add(
            "Gather",
            [t.name(update), t.name(nearest)],
            (*update.shape[:axis], length, *update.shape[axis + 1 :]),
            axis=axis,
        )
        inside = t.pointwise("Equal", offsets, nearest, dtype=np.bool_)
        inside = t.tensor(t.reshape(t.name(inside), (length, *[1] * (len(shape) - 1 - axis))))
        changed = inside if changed is None else t.pointwise("And", changed, inside)
    if changed is None:
        return update
    return t.pointwise("Where", changed, update, operand, dtype=operand.dtype)


def _part(t: Translator, value: Tensor, starts: dict[int, Tensor], sizes: Sequence[Any]) -> Tensor:
    """Slices a value along each axis that has a start."""
    shape, fixed = list(value.shape), {}
    for axis, start in starts.items():
        if start.array is not None and is_static((sizes[axis], shape[axis])):
            fixed[axis] = min(max(int(start.array), 0), int(shape[axis]) - int(sizes[axis]))
    cut = [axis for axis in fixed if sizes[axis] != shape[axis]]
    if cut:
        for axis in cut:
            shape[axis] = int(sizes[axis])
        first = [fixed[axis] for axis in cut]
        ends = [fixed[axis] + shape[axis] for axis in cut]
        bounds = {"starts": first, "ends": ends, "axes": cut, "steps": [1] * len(cut)}
        value = t.add("Slice", [t.name(value)], tuple(shape), **bounds)
    for axis, start in starts.items():
        if sizes[axis] != shape[axis]:
            most, shape[axis] = shape[axis] - sizes[axis], sizes[axis]
            value = _part_from(t, t.name(value), tuple(shape), axis, start, most)
    return value


def _part_from(
    t: Translator, name: str, out_shape: Shape, axis: int, start: Tensor, most: Dim
) -> Tensor:
    """Takes a part along an axis from a start that is known only at run time.

    It is a ``Gather``, whose result has a known shape, so that a compiler can read it. That of a
    ``Slice`` depends on values.
    """
    first = _clipped(t, t.cast(start, np.int64), [most])
    places = t.pointwise("Add", counted(t, out_shape[axis]), first)
    return t.add("Gather", [name, t.full(places, (out_shape[axis],))], out_shape, axis=int(axis))


@rule("gather")
def _gather(t: Translator, equation: Equation) -> Tensor | list[Tensor]:
    equation = _sliced_first(t, equation)
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.in_avals[0].shape
    picked = list(map(int, numbers.start_index_map))
    batch = list(map(int, numbers.operand_batching_dims))
    if any(sizes[axis] != shape[axis] for axis in _others(shape, [*picked, *batch])):
        raise Unsupported(f"of slices {sizes} of {shape}")
    one = len(equation.in_avals[1].shape) == 1
    slices = sorted(picked) != sorted(numbers.collapsed_slice_dims)
    promised = equation.params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS
    if promised and (one or slices):  # jax moves such slices into the array
        params = equation.params.replaced(mode=lax.GatherScatterMode.CLIP)
        equation = equation._replace(params=params)
    if one:
        return _one_slice(t, equation, picked)
    if slices:
        return t.written(partial(_of_elements, equation.params), equation)
    if len(picked) == 1 and not batch:
        return _along_one(t, equation, picked[0])
    return _along_many(t, equation, picked, batch)


def _of_elements(params: Mapping[str, Any], operand: Array, indices: Array) -> Array:
    """Gathers elements instead of slices along the indexed axes, each at an index of its own."""
    numbers, sizes, mode = (params[n] for n in ("dimension_numbers", "slice_sizes", "mode"))
    picked, batch = list(map(int, numbers.start_index_map)), indices.shape[:-1]
    starts = dict(zip(picked, jnp.unstack(indices, axis=-1), strict=True))
    spread = [axis for axis in picked if axis not in numbers.collapsed_slice_dims]
    limits = {axis: operand.shape[axis] - sizes[axis] for axis in picked}
    places, inside = elements(starts, limits, {axis: sizes[axis] for axis in spread}, mode)
    if inside is not None:  # all of a slice is filled, or nothing
        places = {axis: jnp.where(inside, one, -1) for axis, one in places.items()}
    hidden = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [axis for axis in range(operand.ndim) if axis not in hidden]
    rest = [axis for axis in windows if axis not in spread]
    rank = len(batch) + len(windows)
    found = lax.gather(
        operand,
        jnp.stack(list(places.values()), axis=-1),
        numbers._replace(
            offset_dims=tuple(range(rank - len(rest), rank)),
            collapsed_slice_dims=tuple(sorted({*numbers.collapsed_slice_dims, *spread})),
        ),
        [1 if axis in spread else size for axis, size in enumerate(sizes)],
        mode=mode,
        fill_value=params["fill_value"],
    )
    of_windows = dict(zip([*spread, *rest], range(len(batch), rank), strict=True))
    order = [of_windows[axis] for axis in windows]
    dims = list(map(int, numbers.offset_dims))
    return found.transpose(_order(dims, order, list(range(len(batch))), rank))


def elements(
    starts: Mapping[int, Array], limits: Mapping[int, Any], sizes: Mapping[int, Any], mode: Any
) -> tuple[dict[int, Array], Array | None]:
    """Lists the elements of slices.

    Args:
      starts: ``[*b]``, the first index of each slice, by axis.
      limits: the last start of which a slice is within the operand, by axis.
      sizes: sizes of the slices, by axis; along any other axis of ``starts``, it is 1.
      mode: what happens to slices that are not within the operand.

    Returns:
      The indices of the elements ``[*b, *sizes]``, by axis; and which of the slices are within the
      operand, with axes of size 1 for ``sizes``, or None if all are or have been moved there.
    """
    inside = None
    if mode == lax.GatherScatterMode.CLIP:
        starts = {axis: jnp.clip(start, 0, limits[axis]) for axis, start in starts.items()}
    elif mode != lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        within = [(start >= 0) & (start <= limits[axis]) for axis, start in starts.items()]
        inside = jnp.stack(within).all(axis=0)
        inside = inside.reshape(*inside.shape, *[1] * len(sizes))
    places = {}
    for axis, start in starts.items():
        place = start.reshape(*start.shape, *[1] * len(sizes))
        if axis in sizes:
            shape = [-1 if one == axis else 1 for one in sizes]
            place = place + lax.iota(start.dtype, sizes[axis]).reshape(shape)
        places[axis] = jnp.broadcast_to(place, (*start.shape, *sizes.values()))
    return places, inside


def _sliced_first(t: Translator, equation: Equation) -> Equation:
    """Slices the operand along axes where all indices are equal, and drops those indices."""
    numbers, indices = equation.params["dimension_numbers"], t.operand(equation, 1)
    if indices.array is None or len(indices.shape) == 1:
        return equation
    rows = np.reshape(indices.array, (-1, indices.shape[-1]))
    same = {
        axis: constant(rows[0, place])
        for place, axis in enumerate(numbers.start_index_map)
        if axis not in numbers.collapsed_slice_dims and np.all(rows[:, place] == rows[0, place])
    }
    part = _part(t, t.tensor(t.read(equation, 0)), same, equation.params["slice_sizes"])
    rest = [p for p, axis in enumerate(numbers.start_index_map) if axis not in same]
    left = Tensor((*indices.shape[:-1], len(rest)), indices.dtype, array=indices.array[..., rest])
    picked = tuple(numbers.start_index_map[place] for place in rest)
    numbers = numbers._replace(start_index_map=picked)
    return equation._replace(
        inputs=[part, left],
        in_avals=[jax.ShapeDtypeStruct(value.shape, value.dtype) for value in (part, left)],
        params=equation.params.replaced(dimension_numbers=numbers),
    )


def _one_slice(t: Translator, equation: Equation, picked: list[int]) -> Tensor:
    sizes, shape = equation.params["slice_sizes"], equation.in_avals[0].shape
    limits = [shape[axis] - sizes[axis] for axis in picked]
    numbers, valid = _numbers(t, equation, limits)
    starts = {}
    for place, axis in enumerate(picked):
        if numbers.array is not None:
            starts[axis] = constant(numbers.array[place])
        else:
            one = sliced(t, t.name(numbers), (1,), 0, place, place + 1)
            starts[axis] = t.tensor(t.reshape(t.name(one), ()))
    part = _part(t, t.tensor(t.read(equation, 0)), starts, sizes)
    result = t.tensor(t.reshape(t.name(part), equation.out_avals[0].shape))
    return _filled(t, equation, result, valid)


def _along_one(t: Translator, equation: Equation, axis: int) -> Tensor:
    """Gathers along one axis."""
    shape = equation.in_avals[0].shape
    numbers, valid = _numbers(t, equation, [shape[axis] - 1])
    if numbers.array is not None:
        indices = t.graph.constant(numbers.array[..., 0])
        if part := _evenly(t, equation, numbers.array[..., 0], axis):
            return _filled(t, equation, part, valid)
    else:
        indices = t.reshape(t.name(numbers), equation.in_avals[1].shape[:-1])
    rank = len(equation.in_avals[1].shape) - 1
    natural = (*shape[:axis], *equation.in_avals[1].shape[:-1], *shape[axis + 1 :])
    result = t.graph.add("Gather", [t.read(equation, 0), indices], natural, axis=axis)
    dims = list(map(int, equation.params["dimension_numbers"].offset_dims))
    of_slices = [*range(axis), *range(axis + rank, len(natural))]
    order = _order(dims, of_slices, list(range(axis, axis + rank)), len(natural))
    return _filled(t, equation, t.tensor(t.transpose(result, order)), valid)


def _evenly(t: Translator, equation: Equation, numbers: np.ndarray, axis: int) -> Tensor | None:
    """Returns a strided slice along an axis if the indices are evenly spaced, else None."""
    shape, dims = equation.in_avals[0].shape, equation.params["dimension_numbers"].offset_dims
    steps = np.unique(np.diff(numbers)) if numbers.ndim == 1 else ()
    if len(steps) != 1 or steps[0] < 1 or axis in dims or len(dims) != len(shape) - 1:
        return None
    first, last, step = (int(number) for number in (numbers[0], numbers[-1], steps[0]))
    bounds = {"starts": [first], "ends": [last + 1], "axes": [axis], "steps": [step]}
    return t.add("Slice", [t.read(equation, 0)], equation.out_avals[0].shape, **bounds)


def _along_many(t: Translator, equation: Equation, picked: list[int], batch: list[int]) -> Tensor:
    """Gathers along several axes, or in each example of a batch."""
    numbers, shape = equation.params["dimension_numbers"], equation.in_avals[0].shape
    rest = _others(shape, [*picked, *batch])
    operand = t.transpose(t.read(equation, 0), [*batch, *picked, *rest])
    indices, valid = _numbers(t, equation, [shape[axis] - 1 for axis in picked])
    of_numbers = list(map(int, numbers.start_indices_batching_dims))
    rank = len(equation.in_avals[1].shape)
    places = [axis for axis in range(rank - 1) if axis not in of_numbers]
    moved = t.transpose(t.name(indices), [*of_numbers, *places, rank - 1])
    sizes = t.graph.types[moved].shape[:-1]
    natural = (*sizes, *(shape[axis] for axis in rest))
    result = t.graph.add("GatherND", [operand, moved], natural, batch_dims=len(batch))
    # The batch axes now come first among the axes of the indices; restore their order.
    back = np.argsort([*of_numbers, *places]).tolist()
    of_slices = list(range(rank - 1, len(natural)))
    order = _order(list(map(int, numbers.offset_dims)), of_slices, back, len(natural))
    return _filled(t, equation, t.tensor(t.transpose(result, order)), valid)


def _order(dims: list[int], of_slices: list[int], of_numbers: list[int], rank: int) -> list[int]:
    """Returns the permutation with axes of slices at ``dims``, and those of indices elsewhere."""
    slices, numbers = iter(of_slices), iter(of_numbers)
    return [next(slices) if axis in dims else next(numbers) for axis in range(rank)]


def _numbers(t: Translator, equation: Equation, most: list[Dim]) -> tuple[Tensor, Tensor | None]:
    """Returns the clipped indices, and which were in bounds, or None if that does not matter."""
    numbers = t.cast(t.operand(equation, 1), np.int64)
    mode, array = equation.params["mode"], numbers.array
    if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        # It is the default of indexing, where jax clips. ONNX would count -1 from the end; indices
        # beyond it are refused when the file is run, on which `data.traced_chip` relies.
        if array is not None:
            return _int64(np.maximum(array, 0)), None
        return t.pointwise("Max", numbers, _int64(0)), None
    if array is not None and is_static(tuple(most)):
        clipped = _int64(np.clip(array, 0, most))
        if mode == lax.GatherScatterMode.CLIP or np.array_equal(clipped.array, array):
            return clipped, None
    clipped = _clipped(t, numbers, most)
    if mode == lax.GatherScatterMode.CLIP:
        return clipped, None
    return clipped, t.pointwise("Equal", clipped, numbers, dtype=np.bool_)


def _clipped(t: Translator, numbers: Tensor, most: list[Dim]) -> Tensor:
    limits = t.tensor(t.dimensions.shape(tuple(most)))
    return t.pointwise("Min", t.pointwise("Max", numbers, _int64(0)), limits)


def _filled(t: Translator, equation: Equation, result: Tensor, valid: Tensor | None) -> Tensor:
    """Writes the fill value where an index was out of bounds."""
    fill = equation.params["fill_value"]
    if valid is None:
        return result
    out, dims = equation.out_avals[0], equation.params["dimension_numbers"].offset_dims
    flags = t.cast(valid, np.int32)
    inside = t.add("ReduceMin", [t.name(flags)], flags.shape[:-1], axes=[-1], keepdims=0)
    sizes = tuple(1 if axis in dims else size for axis, size in enumerate(out.shape))
    mask = t.cast(t.tensor(t.reshape(t.name(inside), sizes)), np.bool_)
    if fill is None:
        fill = _default_fill(out.dtype)
    other = constant(np.asarray(fill, out.dtype))
    return t.pointwise("Where", mask, result, other, dtype=out.dtype)


def _default_fill(dtype: np.dtype) -> float | bool:
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.nan
    if dtype == np.bool_:
        return True
    limits = np.iinfo(dtype)
    return limits.min or limits.max


def _others(shape: Shape, axes: list[int]) -> list[int]:
    return [axis for axis in range(len(shape)) if axis not in axes]


def _int64(numbers: Any) -> Tensor:
    array = np.int64(numbers)
    return Tensor(array.shape, array.dtype, array=array)
