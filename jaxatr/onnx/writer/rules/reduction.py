"""Rules for reductions, cumulative sums and sorting."""

import math

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.writer.dimensions import is_static
from jaxatr.onnx.writer.graph import Shape, TensorType, Unsupported
from jaxatr.onnx.writer.rules.shaping import sliced
from jaxatr.onnx.writer.translate import Equation, Tensor, Translator, number_like, rule

_REDUCED = {
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_sum": "ReduceSum",
}
_SUMMED = (np.int32, np.int64, np.uint32)
"""Types whose sums are products: those that onnxruntime multiplies."""


@rule(*_REDUCED)
def _reduce(t: Translator, equation: Equation) -> Tensor:
    axes = [int(axis) for axis in equation.params["axes"]]
    if not axes:  # to ONNX this would mean all axes
        return equation.inputs[0]
    out, op = equation.out_avals[0], _REDUCED[equation.primitive]
    if all(equation.in_avals[0].shape[axis] == 1 for axis in axes):
        return t.tensor(t.reshape(t.read(equation, 0), out.shape))
    if equation.primitive == "reduce_prod" and out.dtype.kind in "iu":
        return _product(t, equation, axes)
    if equation.primitive == "reduce_sum" and out.dtype in _SUMMED:
        if (total := _sum(t, equation, axes)) is not None:
            return total
    given = t.read(equation, 0)
    if op not in ("ReduceMax", "ReduceMin") or not jnp.issubdtype(out.dtype, jnp.floating):
        return t.add(op, [given], out.shape, axes=axes, keepdims=0)
    # They skip NaN, unlike a sum of absolute values, which is NaN for no other reason.
    shape = equation.in_avals[0].shape
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    result, total = (t.add(one, [given], kept, axes=axes, keepdims=1) for one in (op, "ReduceL1"))
    nan = t.pointwise("IsNaN", total, dtype=np.bool_)
    value = t.pointwise("Where", nan, total, result, dtype=out.dtype)
    return t.tensor(t.reshape(t.name(value), out.shape))


def _sum(t: Translator, equation: Equation, axes: list[int]) -> Tensor | None:
    """Sums integers as a product with ones, which is exact and wraps as in jax.

    onnxruntime's ``ReduceSum`` computes in floats: it loses digits of 64 bits, and 32 saturate.
    """
    shape, out = equation.in_avals[0].shape, equation.out_avals[0]
    sizes = tuple(shape[axis] for axis in axes)
    if not is_static(sizes) or not math.prod(sizes):
        return None
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    moved = t.transpose(t.read(equation, 0), [*kept, *axes])
    flat = t.reshape(moved, (*(shape[axis] for axis in kept), math.prod(sizes)))
    ones = t.graph.constant(np.ones(math.prod(sizes), out.dtype))
    return t.add("MatMul", [flat, ones], out.shape, out.dtype)


def _product(t: Translator, equation: Equation, axes: list[int]) -> Tensor:
    """Multiplies integers two at a time, which wraps as in jax; ``ReduceProd`` saturates."""
    value = t.operand(equation, 0)
    for axis in axes:
        if not is_static((size := value.shape[axis],)):
            raise Unsupported("of integers along an axis of free size")
        single = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
        if not size:
            value = t.add(
                "Expand", [t.name(number_like(value, 1)), t.dimensions.shape(single)], single
            )
        while size > 1:
            half = (*value.shape[:axis], size // 2, *value.shape[axis + 1 :])
            first, second = (
                sliced(t, t.name(value), half, axis, start, start + size // 2)
                for start in (0, size // 2)
            )
            product = t.pointwise("Mul", first, second)
            if size % 2:
                rest = sliced(t, t.name(value), single, axis, size - 1, size)
                both = (*value.shape[:axis], size // 2 + 1, *value.shape[axis + 1 :])
                product = t.add("Concat", [t.name(product), t.name(rest)], both, axis=axis)
            value, size = product, size // 2 + size % 2
    return t.tensor(t.reshape(t.name(value), equation.out_avals[0].shape))


@rule("reduce_and", "reduce_or")
def _reduce_logical(t: Translator, equation: Equation) -> Tensor:
    op = "ReduceMin" if equation.primitive == "reduce_and" else "ReduceMax"
    axes = [int(axis) for axis in equation.params["axes"]]
    if not axes:
        return equation.inputs[0]
    return reduced_flags(t, op, t.operand(equation, 0), axes, equation.out_avals[0].shape)


def reduced_flags(t: Translator, op: str, flags: Tensor, axes: list[int], shape: Shape) -> Tensor:
    """Reduces booleans along some axes as integers, by ``ReduceMin`` or ``ReduceMax``.

    Along an axis without elements, these are the largest and the least number.
    """
    numbers = t.name(t.cast(flags, np.int32))
    reduced = t.add(op, [numbers], shape, axes=axes, keepdims=0)
    return t.pointwise("Greater", reduced, number_like(reduced, 0), dtype=np.bool_)


@rule("argmax", "argmin")
def _arg(t: Translator, equation: Equation) -> Tensor:
    (axis,), out = equation.params["axes"], equation.out_avals[0]
    op = "ArgMax" if equation.primitive == "argmax" else "ArgMin"
    value = t.operand(equation, 0)
    if value.dtype == np.bool_:
        value = t.cast(value, np.int32)

    def place(op: str, value: Tensor) -> Tensor:
        return t.add(op, [t.name(value)], out.shape, np.int64, axis=int(axis), keepdims=0)

    indices = place(op, value)
    if jnp.issubdtype(value.dtype, jnp.floating):  # the first NaN, if there is one
        nan = t.cast(t.pointwise("IsNaN", value, dtype=np.bool_), np.int32)
        any_nan = t.add("ReduceMax", [t.name(nan)], out.shape, axes=[int(axis)], keepdims=0)
        first = place("ArgMax", nan)
        indices = t.pointwise("Where", t.cast(any_nan, np.bool_), first, indices, dtype=np.int64)
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


@rule("top_k", unread="is_stable")  # TopK always is
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
