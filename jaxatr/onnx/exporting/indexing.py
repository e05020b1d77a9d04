"""Rules of primitives that pick elements by numbers: ``gather`` and ``dynamic_slice``."""

import numpy as np
from jax import lax

from jaxatr.onnx.exporting.dimensions import is_static
from jaxatr.onnx.exporting.shaping import sliced
from jaxatr.onnx.exporting.translate import (
    Equation,
    Translator,
    Unsupported,
    Value,
    constant,
    rule,
)


@rule("dynamic_slice")
def _dynamic_slice(t: Translator, equation: Equation) -> Value:
    shape, sizes = equation.takes[0].shape, equation.params["slice_sizes"]
    value = t.value(t.read(equation, 0))
    for axis, (start, size) in enumerate(zip(equation.inputs[1:], sizes, strict=True)):
        if size == shape[axis]:
            continue
        if not is_static((size, shape[axis])):
            raise Unsupported("along an axis whose size depends on the batch size")
        most = int(shape[axis]) - int(size)
        gives = (*value.shape[:axis], int(size), *value.shape[axis + 1 :])
        if start.array is not None:
            first = min(max(int(start.array), 0), most)
            value = sliced(t, t.name(value), gives, axis, first, first + int(size))
        else:
            value = _cut(t, t.name(value), gives, axis, start, most)
    return value


def _cut(t: Translator, name: str, shape, axis: int, start: Value, most: int) -> Value:
    """Returns a part whose beginning is known only when the model runs."""
    number = _clipped(t, t.cast(start, np.int64), most)
    vector = t.add("Unsqueeze", [t.full(number, ())], (1,), axes=[0])
    length = constant(np.int64([shape[axis]]))
    end = t.pointwise("Add", vector, Value((1,), np.dtype(np.int64), t.name(length)))
    axes = t.graph.constant(np.int64([axis]))
    return t.add("Slice", [name, t.name(vector), t.name(end), axes], shape)


def _clipped(t: Translator, numbers: Value, most: int) -> Value:
    return t.pointwise("Clip", numbers, *map(_int64, (0, most)))


@rule("gather")
def _gather(t: Translator, equation: Equation) -> Value:
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    shape = equation.takes[0].shape
    picked, batch = list(numbers.start_index_map), list(numbers.operand_batching_dims)
    if sorted([*picked, *batch]) != sorted([*numbers.collapsed_slice_dims, *batch]):
        raise Unsupported(f"of slices {sizes}, of which one is longer than one element")
    if any(sizes[axis] != shape[axis] for axis in _others(shape, [*picked, *batch])):
        raise Unsupported(f"of slices {sizes} of {shape}")
    if not all(is_static((shape[axis],)) for axis in picked):
        raise Unsupported("along an axis whose size depends on the batch size")
    if len(picked) == 1 and not batch:
        return _along_one(t, equation, picked[0])
    return _along_many(t, equation, picked, batch)


def _along_one(t: Translator, equation: Equation, axis: int) -> Value:
    """Returns what is picked along one axis, whose numbers' axes stand together in the result."""
    shape, gives = equation.takes[0].shape, equation.gives[0]
    numbers, offsets = _numbers(t, equation, [int(shape[axis])])
    indices = t.add("Squeeze", [t.name(numbers)], equation.takes[1].shape[:-1], axes=[-1])
    if equation.inputs[1].array is not None:
        array = np.broadcast_to(equation.inputs[1].array, equation.takes[1].shape)[..., 0]
        indices = t.value(t.graph.constant(np.int64(np.clip(array, 0, shape[axis] - 1))))
    rank = len(indices.shape)
    natural = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    found = t.add("Gather", [t.read(equation, 0), t.name(indices)], natural, axis=axis)
    dims = list(equation.params["dimension_numbers"].offset_dims)
    of_slices = [*range(axis), *range(axis + rank, len(natural))]
    order = _order(dims, of_slices, list(range(axis, axis + rank)), len(gives.shape))
    return _filled(t, equation, t.value(t.transpose(t.name(found), order)), offsets)


def _along_many(t: Translator, equation: Equation, picked: list[int], batch: list[int]) -> Value:
    """Returns what is picked along several axes, or in each example of a batch."""
    numbers, shape = equation.params["dimension_numbers"], equation.takes[0].shape
    rest = _others(shape, [*picked, *batch])
    operand = t.transpose(t.read(equation, 0), [*batch, *picked, *rest])
    indices, offsets = _numbers(t, equation, [int(shape[axis]) for axis in picked])
    of_numbers = list(numbers.start_indices_batching_dims)
    rank = len(equation.takes[1].shape)
    places = [axis for axis in range(rank - 1) if axis not in of_numbers]
    moved = t.transpose(t.name(indices), [*of_numbers, *places, rank - 1])
    sizes = t.graph.info[moved].shape[:-1]
    natural = (*sizes, *(shape[axis] for axis in rest))
    found = t.graph.add("GatherND", [operand, moved], natural, batch_dims=len(batch))
    # The numbers' axes are now those of the batch first: put them back into their order.
    back = np.argsort([*of_numbers, *places]).tolist()
    of_slices = list(range(rank - 1, len(natural)))
    order = _order(list(numbers.offset_dims), of_slices, back, len(natural))
    return _filled(t, equation, t.value(t.transpose(found, order)), offsets)


def _order(dims: list[int], of_slices: list[int], of_numbers: list[int], rank: int) -> list[int]:
    """Returns the order that puts the slices' axes at ``dims`` and the numbers' at the others."""
    slices, numbers = iter(of_slices), iter(of_numbers)
    return [next(slices) if axis in dims else next(numbers) for axis in range(rank)]


def _numbers(t: Translator, equation: Equation, sizes: list[int]) -> tuple[Value, Value | None]:
    """Returns numbers that are in bounds, and where they were so, if that has a meaning."""
    numbers = t.cast(t.value(t.read(equation, 1)), np.int64)
    mode = equation.params["mode"]
    if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS or _in_bounds(equation, sizes):
        return numbers, None
    most = _int64([size - 1 for size in sizes])
    zero = _int64(0)
    clipped = t.pointwise("Min", t.pointwise("Max", numbers, zero), most)
    if mode == lax.GatherScatterMode.CLIP:
        return clipped, None
    return clipped, t.pointwise("Equal", clipped, numbers, dtype=np.bool_)


def _in_bounds(equation: Equation, sizes: list[int]) -> bool:
    array = equation.inputs[1].array
    return array is not None and bool(np.all((array >= 0) & (array < np.asarray(sizes))))


def _filled(t: Translator, equation: Equation, found: Value, valid: Value | None) -> Value:
    """Returns what was found, with the fill value where a number was out of bounds."""
    if valid is None:
        return found
    gives, dims = equation.gives[0], equation.params["dimension_numbers"].offset_dims
    whole = t.cast(valid, np.int32)
    inside = t.add("ReduceMin", [t.name(whole)], whole.shape[:-1], axes=[-1], keepdims=0)
    sizes = tuple(1 if axis in dims else size for axis, size in enumerate(gives.shape))
    mask = t.cast(t.value(t.reshape(t.name(inside), sizes)), np.bool_)
    fill = equation.params["fill_value"]
    if fill is None:
        fill = np.nan if gives.dtype.kind == "f" else np.iinfo(gives.dtype).min
    return t.pointwise("Where", mask, found, constant(np.asarray(fill, gives.dtype)), dtype=gives.dtype)


def _others(shape, axes: list[int]) -> list[int]:
    return [axis for axis in range(len(shape)) if axis not in axes]


def _int64(numbers) -> Value:
    array = np.int64(numbers)
    return Value(array.shape, array.dtype, array=array)
