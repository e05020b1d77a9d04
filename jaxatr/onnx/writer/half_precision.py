"""Exported networks whose layers compute in float16."""

import numpy as np

from jaxatr.onnx.package import onnx
from jaxatr.onnx.writer.network import Network, has_weights, values_read

_ELEMENTWISE = ("Add", "AveragePool", "Clip", "GlobalAveragePool", "MaxPool", "Relu")


def float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Converts the layers of a network to float16, with their weights.

    Activations stay in float16 between layers, as far as only ReLUs, sums and pooling are between
    them. Inputs and outputs stay as they are.

    Args:
      model: the network, with float32 weights; more may follow it, such as a decision.

    Raises:
      ValueError: no operator multiplies activations by weights, or a weight exceeds float16.
    """
    graph = Network(model)
    halves: dict[str, str] = {}  # names of float16 values by those of the float32 ones
    nodes: list[onnx.NodeProto] = []
    given: set[str] = set(graph.inputs)  # float32 values that exist

    def cast(source: str, target: str, to: int) -> None:
        nodes.append(onnx.helper.make_node("Cast", [source], [target], f"{target}/Cast", to=to))

    def half(name: str) -> str:
        array = graph.array(name)
        if array is not None:
            return graph.put(f"{name}/float16", _as_half(name, array), like=name)
        if name not in halves:
            halves[name] = f"{name}/float16"
            cast(name, halves[name], onnx.TensorProto.FLOAT16)
        return halves[name]

    def whole(name: str) -> None:
        if name in halves and name not in given:
            given.add(name)
            cast(halves[name], name, onnx.TensorProto.FLOAT)

    found = False
    for node in graph.nodes:
        layer = has_weights(graph, node)
        found |= layer
        values = [name for name in node.input if name and graph.array(name) is None]
        joins = node.op_type in _ELEMENTWISE and values and all(name in halves for name in values)
        if layer or joins:
            inputs = [half(name) if name else "" for name in node.input]
            del node.input[:]
            node.input.extend(inputs)
            for place, name in enumerate(node.output):
                halves[name] = node.output[place] = f"{name}/float16"
        else:
            for name in values_read(node):
                whole(name)
            given.update(node.output)
        nodes.append(node)
    if not found:
        raise ValueError("the network has no layer whose weights could be stored in float16")
    for value in graph.model.graph.output:
        whole(value.name)
    return graph.finished(nodes)


def _as_half(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    if np.any(np.isfinite(array) & (np.abs(array) > np.finfo(np.float16).max)):
        raise ValueError(f"{name}: {np.abs(array).max():g} exceeds float16")
    return array.astype(np.float16)
