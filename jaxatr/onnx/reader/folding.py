"""Folds batch norms into the convolutions before them, for inference.

``norm(conv(x, w, b)) = conv(x, f w, f (b - mean) + bias)`` with ``f = scale / sqrt(var + epsilon)``
for each feature, computed in float64 and rounded once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxatr.onnx.ops.convolution import conv, conv_transpose
from jaxatr.onnx.ops.normalisation import batch_normalization
from jaxatr.onnx.reader.program import Call, Program
from jaxatr.onnx.reader.variables import uses

_DTYPES = ("float32", "float64")


def fold_batch_norms(
    program: Program, arrays: Mapping[str, Any]
) -> tuple[Program, dict[str, np.ndarray]]:
    """Folds each batch norm into the convolution before it, if only the norm reads its result.

    Norms in subgraphs, in training mode, or with computed arrays stay unchanged.

    Args:
      program: the program of a whole model.
      arrays: the model's variables and known arrays, by name.

    Returns:
      The program, and its new kernels and biases by name.
    """
    count, made = uses(program), dict[str, np.ndarray]()
    makers = {name: call for call in program.calls for name in call.outputs if name}
    joined: dict[str, Call | None] = {}  # call name to replacement
    for norm in program.calls:
        if not _is_norm(norm) or count[norm.inputs[0]] > 1:
            continue
        layer = makers.get(norm.inputs[0])
        if (
            layer is None
            or layer.operator.function not in (conv, conv_transpose)
            or layer.name in joined
        ):
            continue
        names = [name for name in (*layer.inputs[1:], *norm.inputs[1:]) if name]
        if not all(name in arrays and str(arrays[name].dtype) in _DTYPES for name in names):
            continue
        kernel, bias = f"{norm.outputs[0]}/folded/kernel", f"{norm.outputs[0]}/folded/bias"
        made[kernel], made[bias] = _folded(layer, norm, arrays)
        inputs = (layer.inputs[0], kernel, bias)
        joined[layer.name] = replace(layer, inputs=inputs, outputs=norm.outputs[:1])
        joined[norm.name] = None
    calls = (joined.get(call.name, call) for call in program.calls)
    return replace(program, calls=tuple(call for call in calls if call is not None)), made


def _is_norm(call: Call) -> bool:
    """Returns whether a call normalises channels by stored statistics, with no other output."""
    keywords = call.keywords()
    return (
        call.operator.function is batch_normalization
        and bool(keywords.get("spatial", 1))
        and not keywords.get("training_mode", 0)
        and not any(call.outputs[1:])
    )


def _folded(layer: Call, norm: Call, arrays: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Computes the kernel and the bias of a convolution joined with the norm after it."""
    scale, offset, mean, var = (np.asarray(arrays[n], np.float64) for n in norm.inputs[1:])
    factor = scale / np.sqrt(var + norm.attributes.get("epsilon", 1e-5))
    kernel = np.asarray(arrays[layer.inputs[1]])
    added = "".join(layer.inputs[2:])  # the name of a bias, or empty
    bias = np.asarray(arrays[added], np.float64) if added else 0.0
    rest = (1,) * (kernel.ndim - 2)
    if layer.operator.function is conv:
        wide = kernel * factor.reshape(-1, 1, *rest)
    else:  # [c, f / group, …]: the channels of a group produce the features of that group
        groups = layer.attributes.get("group", 1)
        parts = kernel.reshape(groups, -1, *kernel.shape[1:])
        wide = (parts * factor.reshape(groups, 1, -1, *rest)).reshape(kernel.shape)
    return wide.astype(kernel.dtype), ((bias - mean) * factor + offset).astype(kernel.dtype)
