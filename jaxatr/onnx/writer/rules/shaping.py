"""Rules of primitives that move elements, and of those that make them of nothing."""

import numpy as np

from jaxatr.onnx.writer.dimensions import is_static, stripped
from jaxatr.onnx.writer.graph import Unsupported
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    rule,
)


@rule("broadcast_in_dim")
def _broadcast_in_dim(t: Translator, equation: Equation) -> Tensor:
    value, shape = equation.inputs[0], equation.gives[0].shape
    rank = len(equation.takes[0].shape)
    sizes = (1,) * (rank - len(value.shape)) + tuple(value.shape)
    placed = [1] * len(shape)
    for size, axis in zip(sizes, equation.params["broadcast_dimensions"], strict=True):
        placed[axis] = size
    return _shaped(t, value, stripped(tuple(placed)), len(shape))


@rule("reshape", "expand_dims")
def _reshape(t: Translator, equation: Equation) -> Tensor:
    (value,), before, after = equation.inputs, equation.takes[0].shape, equation.gives[0].shape
    if stripped(before) == stripped(after):
        return _shaped(t, value, stripped(value.shape), len(after))
    if value.array is not None and is_static(after):
        return constant(np.broadcast_to(value.array, before).reshape(after))
    if stripped(value.shape) == ():
        return _shaped(t, value, (), len(after))
    return t.tensor(t.reshape(t.read(equation, 0), after))


def _shaped(t: Translator, value: Tensor, shape: tuple, rank: int) -> Tensor:
    """Returns a value with ones put in or left out of the shape that it was computed in.

    The rank is the one that it has in jax, which must not be exceeded.
    """
    if value.shape == shape:
        return value
    if value.array is not None:
        return constant(np.reshape(value.array, shape))
    if stripped(value.shape) == shape and len(value.shape) <= rank:
        return value  # ones at the beginning do no harm
    return t.tensor(t.reshape(t.name(value), shape))


@rule("squeeze")
def _squeeze(t: Translator, equation: Equation) -> Tensor:
    return t.tensor(t.reshape(t.read(equation, 0), equation.gives[0].shape))


@rule("transpose")
def _transpose(t: Translator, equation: Equation) -> Tensor:
    return t.tensor(t.transpose(t.read(equation, 0), equation.params["permutation"]))


@rule("concatenate")
def _concatenate(t: Translator, equation: Equation) -> Tensor:
    axis = equation.params["dimension"]
    empty = [is_static((aval.shape[axis],)) and not aval.shape[axis] for aval in equation.takes]
    names = [t.read(equation, index) for index, nothing in enumerate(empty) if not nothing]
    return t.add("Concat", names, equation.gives[0].shape, axis=int(axis))


@rule("stack")
def _stack(t: Translator, equation: Equation) -> Tensor:
    gives, axis = equation.gives[0].shape, int(equation.params["axis"])
    single = (*gives[:axis], 1, *gives[axis + 1 :])
    names = [t.reshape(t.read(equation, index), single) for index in range(len(equation.inputs))]
    return t.add("Concat", names, gives, axis=axis)


@rule("split")
def _split(t: Translator, equation: Equation) -> list[Tensor]:
    start, parts = 0, []
    axis, name = equation.params["axis"], t.read(equation, 0)
    for size, gives in zip(equation.params["sizes"], equation.gives, strict=True):
        parts.append(sliced(t, name, gives.shape, axis, start, start + int(size)))
        start += int(size)
    return parts


@rule("slice")
def _slice(t: Translator, equation: Equation) -> Tensor:
    params, name = equation.params, t.read(equation, 0)
    shape = equation.takes[0].shape
    steps = params["strides"] or (1,) * len(shape)
    bounds = list(zip(params["start_indices"], params["limit_indices"], steps, strict=True))
    cut = [axis for axis, bound in enumerate(bounds) if bound != (0, shape[axis], 1)]
    if not cut:
        return t.tensor(name)
    starts, ends, steps = (tuple(bounds[axis][part] for axis in cut) for part in range(3))
    gives = equation.gives[0].shape
    if not is_static(starts + ends):
        bounds = [t.dimensions.shape(part) for part in (starts, ends, tuple(cut), steps)]
        return t.add("Slice", [name, *bounds], gives)
    starts, ends, steps = (list(map(int, part)) for part in (starts, ends, steps))
    return t.add("Slice", [name], gives, starts=starts, ends=ends, axes=cut, steps=steps)


def sliced(t: Translator, name: str, shape: tuple, axis: int, start: int, end: int) -> Tensor:
    """Returns a part of a value along one axis."""
    return t.add("Slice", [name], shape, starts=[start], ends=[end], axes=[int(axis)], steps=[1])


@rule("rev")
def _rev(t: Translator, equation: Equation) -> Tensor:
    axes = [int(axis) for axis in equation.params["dimensions"]]
    return reversed_along(t, t.read(equation, 0), axes)


def reversed_along(t: Translator, name: str, axes: list[int]) -> Tensor:
    """Returns a value with some axes backwards."""
    count = len(axes)
    end = -(2**31)  # beyond any first element
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
    low, high, interior = zip(*equation.params["padding_config"], strict=True)
    if any(interior):
        raise Unsupported("with padding between the elements")
    if not any(low + high):
        return t.tensor(name)
    pads = [int(amount) for amount in low + high]
    return t.add("Pad", [name, "", fill], equation.gives[0].shape, mode="constant", pads=pads)


@rule("iota")
def _iota(t: Translator, equation: Equation) -> Tensor:
    # One with fixed sizes was computed; here the axis or another one grows with the batch.
    aval, axis = equation.gives[0], int(equation.params["dimension"])
    size, rank = aval.shape[axis], len(aval.shape)
    if is_static((size,)):
        array = np.arange(size, dtype=aval.dtype).reshape(size, *[1] * (rank - 1 - axis))
        return constant(array)
    zero, one = (t.graph.int64(number) for number in (0, 1))
    length = t.graph.add("Squeeze", [t.dimensions.size(size)], (), axes=[0])
    counted = t.cast(t.add("Range", [zero, length, one], (size,), np.int64), aval.dtype)
    return t.tensor(t.reshape(t.name(counted), (size, *[1] * (rank - 1 - axis))))


@rule("dim_as_value")
def _dim_as_value(t: Translator, equation: Equation) -> Tensor:
    length = t.dimensions.size(equation.params["dim"])
    scalar = t.add("Squeeze", [length], (), axes=[0])
    return t.cast(scalar, equation.gives[0].dtype)
