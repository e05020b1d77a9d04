"""A model file's weights exchanged for others, its graph left as it is."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxatr.onnx.exporting.write import write_model
from jaxatr.onnx.package import onnx
from jaxatr.typing import PyTree


def replace_weights(
    model: onnx.ModelProto,
    variables: PyTree,
    path: str | os.PathLike,
    *,
    before: Mapping[str, Mapping[str, Any]] | None = None,
) -> onnx.ModelProto:
    """Writes a model with other values in its initializers and constants; nodes and names stay.

    Args:
      model: the source, which is not changed.
      variables: trees of arrays. An array is for the initializer, or the Constant node's output,
        whose name is the array's path joined by ``/``, with or without the collection before it:
        the array in ``{"params": {"conv1.weight": …}}`` is for ``params/conv1.weight`` or
        ``conv1.weight``. What no array is for keeps its values.
      path: of the file.
      before: the variables that the model was read with. What has not changed since is left alone;
        what has, and was computed from constants, is the value of a ``Constant`` node in the place
        of the node that computed it.

    Returns:
      What was written.

    Raises:
      ValueError: arrays that nothing has the name, shape or dtype of: all are named.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    tensors, problems = dict(_tensors(changed.graph)), []
    known = {name: array for group in (before or {}).values() for name, array in group.items()}
    makers = {node.output[0]: node for node in changed.graph.node if len(node.output) == 1}
    for keys, leaf in jax.tree.leaves_with_path(variables):
        array = np.asarray(leaf)
        name = jax.tree_util.keystr(keys, simple=True, separator="/")
        short = jax.tree_util.keystr(keys[1:], simple=True, separator="/")
        if short in known and np.array_equal(array, np.asarray(known[short])):
            continue
        if short in known and short in makers and short not in tensors:
            tensors[short] = _as_constant(makers[short], np.asarray(known[short]))
        tensor = tensors.get(name, tensors.get(short))
        problem = _problem(tensor, array)
        if problem or tensor is None:
            problems.append(f"  {name}: {problem}")
        else:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    if problems:
        raise ValueError("\n".join(["variables do not fit the model:", *problems]))
    write_model(changed, path)
    return changed


def _as_constant(node: onnx.NodeProto, value: np.ndarray) -> onnx.TensorProto:
    """Makes a node one of a constant, and returns the tensor that it has."""
    tensor = onnx.numpy_helper.from_array(value, node.output[0])
    node.op_type, node.domain = "Constant", ""
    del node.input[:], node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("value", tensor))
    return node.attribute[0].t


def _tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yields what a model keeps weights in, by name."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t
    for tensor in graph.initializer:
        yield tensor.name, tensor


def _problem(tensor: onnx.TensorProto | None, array: np.ndarray) -> str:
    if tensor is None:
        return "the model has nothing of this name"
    shape = tuple(tensor.dims)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if shape != array.shape or dtype != array.dtype:
        return f"got {array.dtype} {array.shape}, wanted {dtype} {shape}"
    return ""
