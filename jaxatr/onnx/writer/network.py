"""The network in an exported model, whose layers are converted to another precision."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.lowering import FIXED


class Network:
    """A copy of a model whose batch norms are part of their convolutions, with its uses.

    Attributes:
      model: the copy.
      nodes: its nodes.
      makers: the node that computes each value.
      inputs: names of the graph's inputs.
      weights: names of the arrays that belong to the network.
    """

    def __init__(self, model: onnx.ModelProto):
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.nodes = list(self.model.graph.node)
        self._arrays = {one.name: one for one in self.model.graph.initializer}
        self.inputs = {value.name for value in self.model.graph.input}
        # A file of a run holds a decision too, whose arrays are not below ``params``.
        own = [name for name in self._arrays if name.startswith("params/")]
        properties = {one.key: one.value for one in self.model.metadata_props}
        self._fixed = set(json.loads(properties.get(FIXED, "[]")))
        self.weights = set(own or self._arrays) - self._fixed
        self._index()
        self._fold()
        self._index()

    def _index(self) -> None:
        self.makers = {name: node for node in self.nodes for name in node.output}
        self._uses = Counter(name for node in self.nodes for name in values_read(node))
        self._uses.update(value.name for value in self.model.graph.output)
        self._readers = {name: node for node in self.nodes for name in node.input}

    def array(self, name: str) -> np.ndarray | None:
        """Returns the array of an initializer; None for any other value."""
        one = self._arrays.get(name)
        return None if one is None else onnx.numpy_helper.to_array(one)

    def put(self, name: str, array: np.ndarray, *, like: str = "") -> str:
        """Adds an initializer, or replaces its array.

        Args:
          name: its name.
          array: its values.
          like: the initializer in whose place it is trained, or not; by default it is not.
        """
        if like not in self.weights:
            self._fixed.add(name)
        self._arrays[name] = onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """Returns the node that reads a value, if nothing else does."""
        return self._readers.get(name) if self._uses[name] == 1 else None

    def _fold(self) -> None:
        """Makes batch norms part of the convolutions before them."""
        folded = {}
        for conv in [node for node in self.nodes if node.op_type == "Conv"]:
            norm = self.only_reader(conv.output[0])
            if (
                norm is None
                or norm.op_type != "BatchNormalization"
                or norm.input[0] in norm.input[1:]
            ):
                continue
            parts = [self.array(name) for name in (*conv.input[1:], *norm.input[1:])]
            if any(part is None for part in parts):
                continue
            names = f"{conv.input[1]}/folded", f"{norm.input[2]}/folded"
            kernel, *bias, scale, offset, mean, variance = (np.float64(part) for part in parts)
            factor = scale / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
            offset = offset + factor * (sum(bias) - mean)
            self.put(
                names[0],
                (kernel * factor[:, None, None, None]).astype(np.float32),
                like=conv.input[1],
            )
            self.put(names[1], offset.astype(np.float32), like=conv.input[1])
            self.weights.update(names)
            del conv.input[1:]
            conv.input.extend(names)
            conv.output[0] = norm.output[0]
            folded[id(norm)] = norm
        self.nodes = [node for node in self.nodes if id(node) not in folded]

    def finished(self, nodes: Iterable[onnx.NodeProto]) -> onnx.ModelProto:
        """Returns the copy with other nodes, and the initializers that they read."""
        graph = self.model.graph
        self.nodes = list(nodes)
        self._index()
        del graph.node[:], graph.initializer[:]
        graph.node.extend(self.nodes)
        graph.initializer.extend(one for name, one in self._arrays.items() if self._uses[name])
        fixed = {one.name for one in graph.initializer} & self._fixed
        properties = {one.key: one.value for one in self.model.metadata_props}
        onnx.helper.set_model_props(self.model, properties | {FIXED: json.dumps(sorted(fixed))})
        return self.model


def values_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the values that a node reads, including those that its bodies capture."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from values_read(inner)


def attribute(node: onnx.NodeProto, name: str, default: int | float) -> int | float:
    """Returns a number among a node's attributes."""
    for one in node.attribute:
        if one.name == name:
            return onnx.helper.get_attribute_value(one)
    return default


def has_weights(graph: Network, node: onnx.NodeProto) -> bool:
    """Returns whether a node multiplies activations by weights of the network."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.input[1] not in graph.weights:
        return False
    if attribute(node, "transA", 0.0) or any(
        attribute(node, name, 1.0) != 1 for name in ("alpha", "beta")
    ):
        return False
    arrays = [graph.array(name) for name in node.input[1:]]
    return all(one is not None and one.dtype == np.float32 for one in arrays)
