"""What a model is made of, without its weights."""

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxatr.onnx import expansion
from jaxatr.onnx.attributes import plain
from jaxatr.onnx.lowering import DEEPEST, MOST
from jaxatr.onnx.ops.dtypes import NAMES, TRAINABLE
from jaxatr.onnx.program import Info
from jaxatr.onnx.reading import inferred, info, nested, opsets, read
from jaxatr.onnx.registry import find, own
from jaxatr.onnx.skeleton import skeleton

Shape = tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Layer:
    """One node of a model's graph.

    Attributes:
      name: of the node, or of its first output where it has none.
      operator: its operator.
      domain: of the operator; empty for ONNX's own.
      attributes: in Python; of a tensor its type and shape, of a subgraph its name.
      inputs: what the node reads, with the shapes that are known, absent inputs left out.
      outputs: what it computes, likewise.
      parameters: how many numbers of its inputs are weights.
      supported: whether the importer has an implementation.
      missing: the operators that have none: its own, or those in the body that defines it.
    """

    name: str
    operator: str
    domain: str
    attributes: dict[str, Any] = field(repr=False)
    inputs: tuple[Info, ...] = field(repr=False)
    outputs: tuple[Info, ...]
    parameters: int
    supported: bool
    missing: tuple[str, ...] = ()


def layers(model: Any) -> list[Layer]:
    """Returns the nodes of a model, those of its subgraphs after the node that has them.

    Neither the weights in the file nor those in files beside it are read.

    Args:
      model: path of a file, the bytes of one, or a ``ModelProto``.

    Raises:
      ValueError: it is no model.
    """
    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            raise ValueError(f"model: there is no file {str(model)!r}")
        model = skeleton(model)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        model = skeleton(bytes(model))
    proto, _ = read(model)
    reader = _Reader({(own(f.domain), f.name, f.overload): f for f in proto.functions})
    # Shape inference expands all functions.
    if sum(reader.expanded(node) for node in nested(proto.graph)) <= MOST:
        proto = inferred(proto)  # the shapes are a help, not what was asked for
    reader.graph(proto.graph, opsets(proto.opset_import), {})
    return reader.found


class _Reader:
    """Collects layers."""

    def __init__(self, functions: dict[tuple[str, str, str], Any]):
        self.functions = functions
        self.found: list[Layer] = []
        self.counts: dict[tuple[str, str, str], int] = {}
        self.lacks: dict[tuple, tuple[str, ...]] = {}

    def expanded(self, node: Any, depth: int = 0) -> int:
        """Returns how many nodes a node is with the model's functions expanded.

        More than ``MOST`` stands for too many, and for functions that call each other too deep.
        """
        key = (own(node.domain), node.op_type, node.overload)
        if key not in self.functions:
            return 1
        if depth > DEEPEST:
            return MOST + 1
        if key not in self.counts:
            self.counts[key] = MOST + 1  # what a function that calls itself finds
            inner = nested(self.functions[key])
            self.counts[key] = min(
                1 + sum(self.expanded(one, depth + 1) for one in inner), MOST + 1
            )
        return self.counts[key]

    def graph(self, graph: Any, versions: dict[str, int], outer: dict[str, Info]) -> None:
        known = dict(outer)
        for group in (graph.input, graph.value_info, graph.output):
            known.update((value.name, info(value)) for value in group)
        weights = {}
        for tensor in graph.initializer:
            dtype = NAMES.get(tensor.data_type)
            known[tensor.name] = Info(tensor.name, tuple(tensor.dims), dtype)
            if dtype in TRAINABLE:
                weights[tensor.name] = math.prod(tensor.dims)
        made = {name for n in graph.node for name in n.output if n.op_type.startswith("Constant")}
        for node in graph.node:
            self.node(node, versions, known, weights, made)

    def node(self, node, versions, known: dict[str, Info], weights: dict[str, int], made) -> None:
        missing = self.missing(node, versions)
        operator = find(node.op_type, node.domain, versions.get(own(node.domain), 1))
        names = [name for name in node.input if name]
        count = sum(weights.get(name, 0) for name in dict.fromkeys(names))
        slots = operator.positions(operator.weights, len(node.input)) if operator else []
        for name in {node.input[slot] for slot in slots} & made:
            shape = known[name].shape if name in known else None
            if shape is not None and all(isinstance(size, int) for size in shape):
                count += math.prod(size for size in shape if isinstance(size, int))
        self.found.append(
            Layer(
                node.name or next((name for name in node.output if name), node.op_type),
                node.op_type,
                own(node.domain),
                {a.name: _described(a, node.name) for a in node.attribute},
                tuple(known.get(name) or Info(name, None, None) for name in names),
                tuple(known.get(n) or Info(n, None, None) for n in node.output if n),
                count,
                not missing,
                missing,
            )
        )
        for attribute in node.attribute:
            if attribute.HasField("g"):
                self.graph(attribute.g, versions, known)

    def missing(self, node: Any, versions: dict[str, int], depth: int = 0) -> tuple[str, ...]:
        """Returns the operators without an implementation that a node is, or is defined by."""
        domain = own(node.domain)
        function = self.functions.get((domain, node.op_type, node.overload))
        known = find(node.op_type, domain, versions.get(domain, 1)) is not None
        if known and not (function is not None and domain == ""):
            return ()
        if (domain, node.op_type) == ("", "Constant"):
            return ()
        key = (domain, node.op_type, node.overload, *sorted(versions.items()))
        if key not in self.lacks:
            title = (f"{domain}.{node.op_type}".lstrip("."),)
            self.lacks[key] = title  # what a function that calls itself finds
            body = expansion.body(node, versions, function)
            if body is not None and depth < DEEPEST:
                lacks = [self.missing(one, body.versions, depth + 1) for one in nested(body)]
                self.lacks[key] = tuple(dict.fromkeys(lack for found in lacks for lack in found))
        return self.lacks[key]


def _described(attribute: Any, name: str) -> Any:
    if attribute.HasField("g"):
        return attribute.g.name
    if attribute.HasField("t"):
        return Info(attribute.t.name, tuple(attribute.t.dims), NAMES.get(attribute.t.data_type))
    value = plain(attribute, name)
    return value.shape if isinstance(value, np.ndarray) else value
