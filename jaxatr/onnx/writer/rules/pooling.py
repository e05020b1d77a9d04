"""Rules for reductions over windows."""

import math

import numpy as np

from jaxatr.onnx.writer.graph import Unsupported
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    rule,
)


@rule("reduce_window_max", "reduce_window_min", "reduce_window_sum")
def _reduce_window(t: Translator, equation: Equation) -> Tensor:
    params = equation.params
    if any(step != 1 for step in params["base_dilation"]):
        raise Unsupported("with base_dilation")
    maximum, dtype = equation.primitive == "reduce_window_max", equation.in_avals[0].dtype
    exact = dtype.kind in "biu" and dtype.itemsize <= 4  # in float64
    if dtype.kind in "biu" and (not exact or equation.primitive == "reduce_window_sum"):
        raise Unsupported(f"of {dtype}")
    window = [int(size) for size in params["window_dimensions"]]
    steps, dilations = params["window_strides"], params["window_dilation"]
    padding = params["padding"]
    pooled = [
        axis
        for axis, size in enumerate(window)
        if size != 1 or steps[axis] != 1 or any(padding[axis])
    ]
    other = [axis for axis in range(len(window)) if axis not in pooled]
    if len(other) < 2:
        raise Unsupported(f"over windows {tuple(window)}: wanted size 1 on at least two axes")
    if any(max(padding[axis]) >= window[axis] for axis in pooled):
        raise Unsupported(f"with padding {tuple(padding)} that is not smaller than the window")
    order = [*other, *pooled]
    spatial = order[2:]
    attributes = {
        "kernel_shape": [window[axis] for axis in spatial],
        "strides": [int(steps[axis]) for axis in spatial],
        "dilations": [int(dilations[axis]) for axis in spatial],
        "pads": [int(padding[axis][side]) for side in (0, 1) for axis in spatial],
    }
    shape = tuple(equation.out_avals[0].shape[axis] for axis in order)
    x, back = t.transpose(t.read(equation, 0), order), np.argsort(order).tolist()
    if equation.primitive != "reduce_window_sum":
        wide = t.cast(t.tensor(x), np.float64) if exact else t.tensor(x)
        x = t.name(wide if maximum else t.pointwise("Neg", wide))
        y = t.tensor(t.transpose(t.graph.add("MaxPool", [x], shape, **attributes), back))
        return t.cast(y if maximum else t.pointwise("Neg", y), dtype)
    if any(step != 1 for step in attributes.pop("dilations")):
        raise Unsupported("with window_dilation")  # supported only from opset 19 on
    y = t.graph.add("AveragePool", [x], shape, count_include_pad=1, **attributes)
    mean = t.tensor(t.transpose(y, back))
    return t.pointwise("Mul", mean, constant(np.asarray(math.prod(window), mean.dtype)))
