"""Rules for reductions, cumulative sums and sorting."""

import numpy as np

from jaxatr.onnx.writer.graph import TensorType, Unsupported
from jaxatr.onnx.writer.translate import Equation, Tensor, Translator, rule

_REDUCED = {
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_sum": "ReduceSum",
}


@rule(*_REDUCED)
def _reduce(t: Translator, equation: Equation) -> Tensor:
    axes = [int(axis) for axis in equation.params["axes"]]
    if not axes:  # to ONNX this would mean all axes
        return equation.inputs[0]
    out, op = equation.out_avals[0], _REDUCED[equation.primitive]
    return t.add(op, [t.read(equation, 0)], out.shape, axes=axes, keepdims=0)


@rule("reduce_and", "reduce_or")
def _reduce_logical(t: Translator, equation: Equation) -> Tensor:
    op = "ReduceMin" if equation.primitive == "reduce_and" else "ReduceMax"
    axes = [int(axis) for axis in equation.params["axes"]]
    if not axes:
        return equation.inputs[0]
    number = t.name(t.cast(t.operand(equation, 0), np.int32))
    reduced = t.add(op, [number], equation.out_avals[0].shape, axes=axes, keepdims=0)
    return t.cast(reduced, np.bool_)


@rule("argmax", "argmin")
def _arg(t: Translator, equation: Equation) -> Tensor:
    (axis,), out = equation.params["axes"], equation.out_avals[0]
    op = "ArgMax" if equation.primitive == "argmax" else "ArgMin"
    value = t.operand(equation, 0)
    if value.dtype == np.bool_:
        value = t.cast(value, np.int32)
    indices = t.add(op, [t.name(value)], out.shape, np.int64, axis=int(axis), keepdims=0)
    return t.cast(indices, out.dtype)


@rule("cumsum")
def _cumsum(t: Translator, equation: Equation) -> Tensor:
    axis = t.graph.int64(equation.params["axis"])
    return t.add(
        "CumSum",
        [t.read(equation, 0), axis],
        equation.out_avals[0].shape,
        reverse=int(equation.params["reverse"]),
    )


@rule("top_k")
def _top_k(t: Translator, equation: Equation) -> list[Tensor]:
    values, indices = equation.out_avals
    name, count = t.read(equation, 0), t.graph.int64([equation.params["k"]])
    outputs = [
        TensorType(values.shape, values.dtype),
        TensorType(indices.shape, np.dtype(np.int64)),
    ]
    axis = int(equation.params.get("axis", len(values.shape) - 1))
    largest, places = t.graph.add_many("TopK", [name, count], outputs, axis=axis)
    return [t.tensor(largest), t.cast(t.tensor(places), indices.dtype)]


@rule("sort", unread="is_stable")  # TopK always is
def _sort(t: Translator, equation: Equation) -> list[Tensor]:
    axis, shape = int(equation.params["dimension"]), equation.in_avals[0].shape
    if equation.params["num_keys"] != 1:
        raise Unsupported("by more than one key")
    count = t.dimensions.shape((shape[axis],))
    name, *others = (t.read(equation, index) for index in range(len(equation.inputs)))
    outputs = [t.graph.types[name], TensorType(shape, np.dtype(np.int64))]
    least, places = t.graph.add_many("TopK", [name, count], outputs, axis=axis, largest=0)
    moved = [t.add("GatherElements", [other, places], shape, axis=axis) for other in others]
    return [t.tensor(least), *moved]
