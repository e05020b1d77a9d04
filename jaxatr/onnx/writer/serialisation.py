"""Converts a graph to a model proto, checks it and writes it atomically."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr import files
from jaxatr.onnx.package import PRODUCER, onnx
from jaxatr.onnx.reader.lowering import FIXED
from jaxatr.onnx.writer.graph import Graph, Node

# Maximum bytes of weights in one file: protobuf's limit of 2³¹, minus room for the graph.
LARGEST = 2**31 - 2**24

_AS_INPUTS = {
    "Expand": ("shape",),
    "Pad": ("pads",),
    "Reshape": ("shape",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Squeeze": ("axes",),
    "Unsqueeze": ("axes",),
} | {f"Reduce{kind}": ("axes",) for kind in ("L1", "Max", "Mean", "Min", "Prod", "Sum")}


def model_proto(
    graph: Graph, *, opset: int, name: str, properties: Mapping[str, str]
) -> onnx.ModelProto:
    """Converts a graph to a model proto.

    Args:
      graph: the root graph, with final names.
      opset: ONNX opset version.
      name: name of the graph.
      properties: entries of ``metadata_props``. An entry is added with the names of floating-point
        initializers that are not weights, so that :func:`jaxatr.onnx.load` does not train them.
    """
    opsets = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(
        _graph_proto(graph, name),
        opset_imports=opsets,
        ir_version=onnx.helper.find_min_ir_version_for(opsets),
        producer_name=PRODUCER,
        producer_version=metadata.version("jaxatr"),
    )
    fixed = [
        name
        for name, array in graph.initializers.items()
        if name not in graph.weights and array.dtype.kind not in "biu"  # never trained
    ]
    not_trained = {FIXED: json.dumps(fixed)} if fixed else {}
    onnx.helper.set_model_props(model, {**properties, **not_trained})
    return model


def write_model(
    model: onnx.ModelProto,
    path: str | os.PathLike,
    *,
    source: Callable[[], onnx.ModelProto] | None = None,
) -> None:
    """Checks a model and writes it atomically.

    Weights that are too large for one file go into a second file, ``PATH.data``.

    Args:
      model: the model proto.
      path: path of the file.
      source: returns the model that this one was made from. A fault that it has too is accepted:
        runtimes read many files that onnx's checker refuses.

    Raises:
      ValueError: the folder does not exist, or the model is not valid.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path}: there is no folder {path.parent}")
    files.check_replaceable(path)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        partial = Path(folder) / path.name
        fault = _written(model, partial)
        if fault:
            (Path(folder) / "source").mkdir()
            if not source or fault != _written(source(), Path(folder) / "source" / path.name):
                raise ValueError(f"{path}: the model would not be valid: {fault}")
        if os.path.exists(f"{partial}.data"):
            os.replace(f"{partial}.data", f"{path}.data")
        os.replace(partial, path)


def _written(model: onnx.ModelProto, path: Path) -> str:
    """Writes a model, and returns what is wrong with it, or an empty string."""
    options: dict[str, Any] = {}
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > LARGEST:
        options = {"save_as_external_data": True, "location": f"{path.name}.data"}
    onnx.save_model(model, path, **options)
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)
    return ""


def _graph_proto(graph: Graph, name: str) -> onnx.GraphProto:
    nodes = [_node_proto(node, graph) for node in graph.nodes]  # these add constants
    initializers = []
    if graph.root is graph:
        initializers = [
            onnx.numpy_helper.from_array(array, key) for key, array in graph.initializers.items()
        ]
    return onnx.helper.make_graph(
        nodes,
        name,
        [_value_info(graph, value) for value in graph.inputs],
        [_value_info(graph, value) for value in graph.outputs],
        initializers,
    )


def _value_info(graph: Graph, name: str) -> onnx.ValueInfoProto:
    shape, dtype = graph.types[name]
    sizes = [int(size) if isinstance(size, int) else str(size) for size in shape]
    return onnx.helper.make_tensor_value_info(
        name, onnx.helper.np_dtype_to_tensor_dtype(dtype), sizes
    )


def _node_proto(node: Node, graph: Graph) -> onnx.NodeProto:
    attributes, inputs = dict(node.attributes), list(node.inputs)
    moved = [key for key in _AS_INPUTS.get(node.op, ()) if key in attributes]
    names = [graph.constant(np.asarray(attributes.pop(key), np.int64)) for key in moved]
    inputs[1 : 1 + len(names)] = names
    # An empty list has no element type; ONNX treats a missing attribute in the same way.
    given = {key: value for key, value in attributes.items() if value != []}
    converted = {key: _attribute(value, node, key) for key, value in given.items()}
    return onnx.helper.make_node(node.op, inputs, node.outputs, node.name, **converted)


def _attribute(value: Any, node: Node, key: str) -> Any:
    if isinstance(value, Graph):
        return _graph_proto(value, f"{node.name}/{key}")
    return onnx.helper.np_dtype_to_tensor_dtype(value) if key == "to" else value
