"""Rules for primitives that move elements, and for ``iota``."""

import numpy as np

from jaxatr.onnx.writer.dimensions import is_static, stripped
from jaxatr.onnx.writer.graph import Dim
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    rule,
)


@rule("broadcast_in_dim")
def _broadcast_in_dim(t: Translator, equation: Equation) -> Tensor:
    value, shape = equation.inputs[0], equation.out_avals[0].shape
    rank = len(equation.in_avals[0].shape)
    sizes = (1,) * (rank - len(value.shape)) + tuple(value.shape)
    placed = [1] * len(shape)
    for size, axis in zip(sizes, equation.params["broadcast_dimensions"], strict=True):
        placed[axis] = size
    return _shaped(t, value, stripped(tuple(placed)), len(shape))


@rule("reshape", "expand_dims")
def _reshape(t: Translator, equation: Equation) -> Tensor:
    (value,), before, after = (
        equation.inputs,
        equation.in_avals[0].shape,
        equation.out_avals[0].shape,
    )
    order = equation.params.get("dimensions")
    if order is not None and list(order) != sorted(order):
        moved = t.transpose(t.read(equation, 0), order)
        return t.tensor(t.reshape(moved, after))
    if stripped(before) == stripped(after):
        return _shaped(t, value, stripped(value.shape), len(after))
    if value.array is not None and is_static(after):
        return constant(np.broadcast_to(value.array, before).reshape(after))
    if stripped(value.shape) == ():
        return _shaped(t, value, (), len(after))
    return t.tensor(t.reshape(t.read(equation, 0), after))


def _shaped(t: Translator, value: Tensor, shape: tuple, rank: int) -> Tensor:
    """Returns a value with axes of size 1 added to or removed from its computed shape.

    Args:
      t: the translator.
      value: the value.
      shape: the shape to compute it in, without leading ones.
      rank: rank of the value in jax, the maximum rank of the result.
    """
    if value.shape == shape:
        return value
    if value.array is not None:
        return constant(np.reshape(value.array, shape))
    if stripped(value.shape) == shape and len(value.shape) <= rank:
        return value  # leading ones do not matter
    return t.tensor(t.reshape(t.name(value), shape))


@rule("squeeze", unread="dimensions")  # the result's shape implies them
def _squeeze(t: Translator, equation: Equation) -> Tensor:
    return t.tensor(t.reshape(t.read(equation, 0), equation.out_avals[0].shape))


@rule("transpose")
def _transpose(t: Translator, equation: Equation) -> Tensor:
    return t.tensor(t.transpose(t.read(equation, 0), equation.params["permutation"]))


@rule("concatenate")
def _concatenate(t: Translator, equation: Equation) -> Tensor:
    axis = equation.params["dimension"]
    empty = [is_static((aval.shape[axis],)) and not aval.shape[axis] for aval in equation.in_avals]
    wanted = [index for index, nothing in enumerate(empty) if not nothing] or [0]
    names = [t.read(equation, index) for index in wanted]
    return t.add("Concat", names, equation.out_avals[0].shape, axis=int(axis))


@rule("stack")
def _stack(t: Translator, equation: Equation) -> Tensor:
    out_shape, axis = equation.out_avals[0].shape, int(equation.params["axis"])
    single = (*out_shape[:axis], 1, *out_shape[axis + 1 :])
    names = [t.reshape(t.read(equation, index), single) for index in range(len(equation.inputs))]
    return t.add("Concat", names, out_shape, axis=axis)


@rule("unstack")
def _unstack(t: Translator, equation: Equation) -> list[Tensor]:
    axis, name = int(equation.params["axis"]), t.read(equation, 0)
    shape = equation.in_avals[0].shape
    single = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [sliced(t, name, single, axis, n, n + 1) for n in range(len(equation.out_avals))]
    return [t.tensor(t.reshape(t.name(part), equation.out_avals[0].shape)) for part in parts]


@rule("tile")
def _tile(t: Translator, equation: Equation) -> Tensor:
    repeats = t.dimensions.shape(equation.params["reps"])
    return t.add("Tile", [t.read(equation, 0), repeats], equation.out_avals[0].shape)


@rule("split")
def _split(t: Translator, equation: Equation) -> list[Tensor]:
    start, parts = 0, []
    axis, name = equation.params["axis"], t.read(equation, 0)
    for size, out in zip(equation.params["sizes"], equation.out_avals, strict=True):
        parts.append(sliced(t, name, out.shape, axis, start, start + int(size)))
        start += int(size)
    return parts


@rule("slice")
def _slice(t: Translator, equation: Equation) -> Tensor:
    params, name = equation.params, t.read(equation, 0)
    shape = equation.in_avals[0].shape
    steps = params["strides"] or (1,) * len(shape)
    bounds = list(zip(params["start_indices"], params["limit_indices"], steps, strict=True))
    cut = [axis for axis, bound in enumerate(bounds) if bound != (0, shape[axis], 1)]
    if not cut:
        return t.tensor(name)
    starts, ends, steps = (tuple(bounds[axis][part] for axis in cut) for part in range(3))
    out_shape = equation.out_avals[0].shape
    if not is_static(starts + ends):
        bounds = [t.dimensions.shape(part) for part in (starts, ends, tuple(cut), steps)]
        return t.add("Slice", [name, *bounds], out_shape)
    starts, ends, steps = (list(map(int, part)) for part in (starts, ends, steps))
    return t.add("Slice", [name], out_shape, starts=starts, ends=ends, axes=cut, steps=steps)


def sliced(t: Translator, name: str, shape: tuple, axis: int, start: int, end: int) -> Tensor:
    """Slices a value along one axis."""
    return t.add("Slice", [name], shape, starts=[start], ends=[end], axes=[int(axis)], steps=[1])


@rule("rev")
def _rev(t: Translator, equation: Equation) -> Tensor:
    axes = [int(axis) for axis in equation.params["dimensions"]]
    return reversed_along(t, t.read(equation, 0), axes)


def reversed_along(t: Translator, name: str, axes: list[int]) -> Tensor:
    """Reverses a value along some axes."""
    count = len(axes)
    end = -(2**31)  # before any first element
    return t.add(
        "Slice",
        [name],
        t.graph.types[name].shape,
        starts=[-1] * count,
        ends=[end] * count,
        axes=axes,
        steps=[-1] * count,
    )


@rule("pad")
def _pad(t: Translator, equation: Equation) -> Tensor:
    name, fill = t.read(equation, 0), t.name(equation.inputs[1])
    low, high, _ = zip(*equation.params["padding_config"], strict=True)  # none between
    if not any(low + high):
        return t.tensor(name)
    pads = [int(amount) for amount in low + high]
    return t.add("Pad", [name, "", fill], equation.out_avals[0].shape, mode="constant", pads=pads)


@rule("iota")
def _iota(t: Translator, equation: Equation) -> Tensor:
    # An iota of static shape is already computed; here this or another size is symbolic.
    aval, axis = equation.out_avals[0], int(equation.params["dimension"])
    size, rank = aval.shape[axis], len(aval.shape)
    numbers = t.cast(counted(t, size), aval.dtype)
    if numbers.array is not None:
        return constant(numbers.array.reshape(size, *[1] * (rank - 1 - axis)))
    return t.tensor(t.reshape(t.name(numbers), (size, *[1] * (rank - 1 - axis))))


def counted(t: Translator, size: Dim) -> Tensor:
    """Returns the numbers from 0 up to a size, which may be symbolic, in int64."""
    if is_static((size,)):
        return constant(np.arange(size))
    zero, one = (t.graph.int64(number) for number in (0, 1))
    length = t.graph.add("Squeeze", [t.dimensions.size(size)], (), axes=[0])
    return t.add("Range", [zero, length, one], (size,), np.int64)


@rule("dim_as_value")
def _dim_as_value(t: Translator, equation: Equation) -> Tensor:
    length = t.dimensions.size(equation.params["dim"])
    scalar = t.add("Squeeze", [length], (), axes=[0])
    return t.cast(scalar, equation.out_avals[0].dtype)
