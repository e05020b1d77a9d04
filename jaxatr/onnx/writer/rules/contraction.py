"""Rules for contractions: ``dot_general`` and convolutions.

Convolutions are transposed to ONNX's layout and back; :mod:`~jaxatr.onnx.writer.layout` removes
the transpositions that cancel.
"""

import functools
import string

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.writer.graph import Unsupported
from jaxatr.onnx.writer.rules.shaping import reversed_along
from jaxatr.onnx.writer.translate import Equation, Tensor, Translator, rule


@rule("dot_general")
def _dot_general(t: Translator, equation: Equation) -> Tensor:
    out = equation.out_avals[0]
    (left, right), batch = equation.params["dimension_numbers"]
    types = [aval.dtype for aval in (*equation.in_avals, out)]
    plain = not any(map(len, batch)) and len(left) == 1 and len(equation.in_avals[1].shape) == 2
    if plain and types == [np.uint8, np.int8, np.int32]:
        names = [t.name(t.operand(equation, index)) for index in (0, 1)]
        return _product(t, names, left[0], right[0], out.shape, op="MatMulInteger")
    return t.cast(_contraction(t, equation, _operands(t, equation)), out.dtype)


def _contraction(t: Translator, equation: Equation, names: list[str]) -> Tensor:
    (left_sum, right_sum), batch = equation.params["dimension_numbers"]
    out, ranks = equation.out_avals[0], [len(aval.shape) for aval in equation.in_avals]
    if not any(map(len, batch)) and len(left_sum) == 1:
        if ranks[1] == 2:
            return _product(t, names, left_sum[0], right_sum[0], out.shape)
        if ranks[0] == 2:  # the remaining axis of the first operand comes first in the result
            free = [axis for axis in range(ranks[1]) if axis != right_sum[0]]
            shape = (*(equation.in_avals[1].shape[axis] for axis in free), out.shape[0])
            product = _product(t, names[::-1], right_sum[0], left_sum[0], shape)
            order = [len(free), *range(len(free))]
            return t.tensor(t.transpose(t.name(product), order))
    leading = tuple(range(len(batch[0])))
    if ranks == [len(leading) + 2] * 2 and batch[0] == batch[1] == leading and len(left_sum) == 1:
        return _products(t, names, left_sum[0], right_sum[0], out.shape)
    return _einsum(t, names, ranks, equation.params["dimension_numbers"], out)


def _operands(t: Translator, equation: Equation) -> list[str]:
    """Returns the operands in the type of the sums: the widest of theirs and the result's."""
    types = (aval.dtype for aval in (*equation.in_avals, *equation.out_avals))
    dtype = functools.reduce(jnp.promote_types, types)
    return [t.name(t.cast(t.operand(equation, index), dtype)) for index in (0, 1)]


def _product(
    t: Translator, names: list[str], left: int, right: int, shape: tuple, *, op: str = "MatMul"
) -> Tensor:
    """Contracts an axis of a tensor with an axis of a matrix; the other axes stay in order."""
    rank = len(t.graph.types[names[0]].shape)
    moved = t.transpose(names[0], [*(axis for axis in range(rank) if axis != left), left])
    matrix = t.transpose(names[1], [0, 1] if right == 0 else [1, 0])
    dtype = np.dtype(np.int32) if op == "MatMulInteger" else None
    return t.add(op, [moved, matrix], shape, dtype)


def _products(t: Translator, names: list[str], left: int, right: int, shape: tuple) -> Tensor:
    """Multiplies two stacks of matrices, of which engines have faster products than of einsums."""
    *leading, row, column = range(len(shape))
    rows = t.transpose(names[0], [*leading, row + column - left, left])
    columns = t.transpose(names[1], [*leading, right, row + column - right])
    return t.add("MatMul", [rows, columns], shape)


def _einsum(t: Translator, names: list[str], ranks: list[int], numbers, out) -> Tensor:
    (sums, batches), letters = numbers, iter(string.ascii_letters)
    terms = [[""] * rank for rank in ranks]
    for pair in (*zip(*sums, strict=True), *zip(*batches, strict=True)):
        letter = next(letters)
        for term, axis in zip(terms, pair, strict=True):
            term[axis] = letter
    terms = [[letter or next(letters) for letter in term] for term in terms]
    shared = [terms[0][axis] for axis in batches[0]]
    free = [
        letter
        for term, axes, batch in zip(terms, sums, batches, strict=True)
        for axis, letter in enumerate(term)
        if axis not in (*axes, *batch)
    ]
    left, right = map("".join, terms)
    equation = f"{left},{right}->{''.join(shared + free)}"
    return t.add("Einsum", names, out.shape, equation=equation)


@rule("conv_general_dilated")
def _convolution(t: Translator, equation: Equation) -> Tensor:
    params = equation.params
    if params["batch_group_count"] != 1:
        raise Unsupported("with batch_group_count, which occurs only in gradients")
    numbers = params["dimension_numbers"]
    x, w = _operands(t, equation)
    x = t.transpose(x, numbers.lhs_spec)
    w = t.transpose(w, numbers.rhs_spec)
    out_shape = tuple(equation.out_avals[0].shape[axis] for axis in numbers.out_spec)
    options = {
        "dilations": _numbers(params["rhs_dilation"]),
        "group": int(params["feature_group_count"]),
    }
    padding = [(int(low), int(high)) for low, high in params["padding"]]
    if any(step != 1 for step in params["lhs_dilation"]):
        y = _transposed(t, x, w, out_shape, equation, padding, options)
    else:
        x = _without_negative(t, x, padding)
        y = t.graph.add(
            "Conv",
            [x, w],
            out_shape,
            strides=_numbers(params["window_strides"]),
            pads=[max(pair[side], 0) for side in (0, 1) for pair in padding],
            **options,
        )
    y = t.transpose(y, np.argsort(numbers.out_spec).tolist())
    return t.cast(t.tensor(y), equation.out_avals[0].dtype)


def _without_negative(t: Translator, x: str, padding: list[tuple[int, int]]) -> str:
    """Returns ``x`` cropped by the negative part of the padding."""
    cut = [(min(low, 0), min(high, 0)) for low, high in padding]
    if not any(map(any, cut)):
        return x
    shape = t.graph.types[x].shape
    sizes = tuple(n + sum(pair) for n, pair in zip(shape[2:], cut, strict=True))
    pads = [0, 0, *(low for low, _ in cut), 0, 0, *(high for _, high in cut)]
    return t.graph.add("Pad", [x], (*shape[:2], *sizes), mode="constant", pads=pads)


def _transposed(t: Translator, x, w, out_shape, equation, padding, options) -> str:
    """Returns a convolution with ``lhs_dilation`` as ONNX's transposed convolution.

    ONNX flips the kernel, and crops the full result by the pads.
    """
    params = equation.params
    if any(step != 1 for step in params["window_strides"]):
        raise Unsupported("with both window_strides and lhs_dilation")
    shape, groups = t.graph.types[w].shape, options["group"]
    features, depth, *window = shape
    w = t.name(reversed_along(t, w, list(range(2, len(shape)))))
    if groups > 1:
        w = t.reshape(w, (groups, features // groups, depth, *window))
        w = t.transpose(w, [0, 2, 1, *range(3, len(shape) + 1)])
        w = t.reshape(w, (groups * depth, features // groups, *window))
    else:
        w = t.transpose(w, [1, 0, *range(2, len(shape))])
    reach = [(n - 1) * step for n, step in zip(window, options["dilations"], strict=True)]
    low = [far - pair[0] for far, pair in zip(reach, padding, strict=True)]
    high = [far - pair[1] for far, pair in zip(reach, padding, strict=True)]
    steps = _numbers(params["lhs_dilation"])
    added = [max(-amount, 0) for amount in high]
    if min(low) < 0 or any(more >= step for more, step in zip(added, steps, strict=True)):
        raise Unsupported(f"with padding {padding} and lhs_dilation {steps}")
    return t.graph.add(
        "ConvTranspose",
        [x, w],
        out_shape,
        strides=steps,
        pads=[*low, *(max(amount, 0) for amount in high)],
        output_padding=added,
        **options,
    )


def _numbers(sizes) -> list[int]:
    return [int(size) for size in sizes]
