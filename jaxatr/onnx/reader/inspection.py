"""Lists a model's nodes without reading its weights, and prints tables of nodes and operators."""

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxatr.files import MissingFileError
from jaxatr.onnx.ops.dtypes import NAMES, TRAINABLE
from jaxatr.onnx.ops.registry import Operator, find, operators, own, titled
from jaxatr.onnx.package import PRODUCER
from jaxatr.onnx.reader import expansion, formulas
from jaxatr.onnx.reader.attributes import plain
from jaxatr.onnx.reader.lowering import DEEPEST, MOST, declared_constants
from jaxatr.onnx.reader.program import Call, Program, ValueInfo
from jaxatr.onnx.reader.proto import (
    inferred,
    nested,
    opsets,
    ordered,
    printable,
    read,
    value_info,
)
from jaxatr.onnx.reader.tensors import to_array
from jaxatr.onnx.reader.weightless import without_weights

HEADER = ("name", "operator", "attributes", "inputs", "outputs", "parameters", "supported")
WIDEST = 48
"""Maximum width of a cell in characters; longer text is cut."""


@dataclass(frozen=True)
class Layer:
    """One node of a model's graph.

    Attributes:
      name: name of the node, or of its first output if the node has none.
      operator: name of its operator.
      domain: domain of the operator; empty for ONNX's standard domain.
      attributes: attribute values; a tensor is replaced by its type and shape, a subgraph by its
        name.
      inputs: the values that the node reads, with their shapes if known; without absent ones.
      outputs: the values that it computes, in the same form.
      parameters: number of elements of the weights among its inputs.
      constants: names of the float initializers among its inputs that are constants of formulas,
        which :func:`jaxatr.onnx.load` does not train.
      supported: whether the importer can run the node.
      missing: operators without an implementation: the node's own, or those of the function that
        defines it.
    """

    name: str
    operator: str
    domain: str
    attributes: dict[str, Any] = field(repr=False)
    inputs: tuple[ValueInfo, ...] = field(repr=False)
    outputs: tuple[ValueInfo, ...]
    parameters: int
    supported: bool
    missing: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()


def layers(model: Any) -> list[Layer]:
    """Returns the nodes of a model; those of a subgraph follow the node that owns it.

    Weights are not read, whether they are in the file or in external files.

    Args:
      model: path of a file, its bytes, or a ``ModelProto``.

    Raises:
      ValueError: there is no such file, or it is not an ONNX model.
    """
    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            raise MissingFileError(f"model: there is no file {str(model)!r}")
        model = without_weights(model)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        model = without_weights(bytes(model))
    proto, _ = read(model)
    collector = _LayerCollector({(own(f.domain), f.name, f.overload): f for f in proto.functions})
    # Shape inference expands all functions; a model that would grow too large has no shapes.
    if sum(collector.expanded(node) for node in nested(proto.graph)) <= MOST:
        proto = inferred(proto)
    versions = opsets(proto.opset_import)
    collector.constants = _constants(proto, versions)
    collector.graph(proto.graph, versions, {})
    return collector.layers


def table(layers: Sequence[Layer]) -> str:
    """Returns a text table with one line per node."""
    rows = [HEADER, *(_cells(layer) for layer in layers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(layers: Sequence[Layer]) -> str:
    """Returns a text with the numbers of nodes and parameters, and the missing operators."""
    count = sum(layer.parameters for layer in layers)
    lines = [f"{len(layers)} nodes, {count:,} parameters"]
    if constants := list(dict.fromkeys(name for layer in layers for name in layer.constants)):
        lines.append(
            f"{len(constants)} constants of formulas, which are not trained (load(..., "
            f"trainable=[NAME]) trains one): {printable(', '.join(constants))}"
        )
    missing: dict[str, list[str]] = {}
    for layer in layers:
        for operator in layer.missing:
            missing.setdefault(printable(operator), []).append(layer.name)
    if not missing:
        return "\n".join([*lines, "every operator has an implementation"])
    lines.append("operators without an implementation (jaxatr.onnx.register adds one):")
    lines.extend(f"  {name}: {printable(', '.join(at))}" for name, at in sorted(missing.items()))
    return "\n".join(lines)


def operator_table() -> str:
    """Returns a Markdown table of every operator that has an implementation.

    Operators that ONNX defines as functions of others are left out: they are expanded. So are those
    of jaxatr's own domain, which files do not name.
    """
    versions: dict[tuple[str, str], list[Operator]] = {}
    for operator in operators():
        versions.setdefault((operator.domain, operator.name), []).append(operator)
    lines = ["| operator | from version | function |", "|---|---|---|"]
    for (domain, name), implementations in versions.items():
        if domain == "jaxatr":
            continue
        title = titled(domain, name)
        since = ", ".join(str(operator.since) for operator in implementations)
        functions = ", ".join(dict.fromkeys(f"`{o.function.__name__}`" for o in implementations))
        lines.append(f"| {title} | {since} | {functions} |")
    return "\n".join(lines)


class _LayerCollector:
    """Collects the layers of a graph and of its subgraphs."""

    def __init__(self, functions: dict[tuple[str, str, str], Any]):
        self.functions = functions
        self.layers: list[Layer] = []
        self.constants: set[str] = set()
        self.counts: dict[tuple[str, str, str], int] = {}
        self.lacks: dict[tuple, tuple[str, ...]] = {}

    def expanded(self, node: Any, depth: int = 0) -> int:
        """Returns the number of nodes that a node expands to, at most ``MOST + 1``.

        Functions that are nested too deeply count as ``MOST + 1``.
        """
        key = (own(node.domain), node.op_type, node.overload)
        if key not in self.functions:
            return 1
        if depth > DEEPEST:
            return MOST + 1
        if key not in self.counts:
            self.counts[key] = MOST + 1  # provisional, so that a recursive function ends
            inner = nested(self.functions[key])
            self.counts[key] = min(
                1 + sum(self.expanded(one, depth + 1) for one in inner), MOST + 1
            )
        return self.counts[key]

    def graph(self, graph: Any, versions: dict[str, int], outer: dict[str, ValueInfo]) -> None:
        known = dict(outer)
        for group in (graph.input, graph.value_info, graph.output):
            known.update((value.name, value_info(value)) for value in group)
        weights = {}
        for tensor in graph.initializer:
            dtype = NAMES.get(tensor.data_type)
            known[tensor.name] = ValueInfo(tensor.name, tuple(tensor.dims), dtype)
            if dtype in TRAINABLE and tensor.name not in self.constants:
                weights[tensor.name] = math.prod(tensor.dims)
        constants = {
            name for n in graph.node for name in n.output if n.op_type.startswith("Constant")
        }
        for node in graph.node:
            self.node(node, versions, known, weights, constants)

    def node(
        self, node, versions, known: dict[str, ValueInfo], weights: dict[str, int], constants
    ) -> None:
        missing = self.missing(node, versions)
        operator = find(node.op_type, node.domain, versions.get(own(node.domain), 1))
        names = [name for name in node.input if name]
        count = sum(weights.get(name, 0) for name in dict.fromkeys(names))
        slots = operator.positions(operator.weights, len(node.input)) if operator else []
        for name in {node.input[slot] for slot in slots} & constants:
            shape = known[name].shape if name in known else None
            if shape is not None and all(isinstance(size, int) for size in shape):
                count += math.prod(size for size in shape if isinstance(size, int))
        self.layers.append(
            Layer(
                node.name or next((name for name in node.output if name), node.op_type),
                node.op_type,
                own(node.domain),
                {a.name: _described(a, node.name) for a in node.attribute},
                tuple(known.get(name) or ValueInfo(name, None, None) for name in names),
                tuple(known.get(n) or ValueInfo(n, None, None) for n in node.output if n),
                count,
                not missing,
                missing,
                tuple(name for name in dict.fromkeys(names) if name in self.constants),
            )
        )
        for attribute in node.attribute:
            if attribute.HasField("g"):
                self.graph(attribute.g, versions, known)

    def missing(self, node: Any, versions: dict[str, int], depth: int = 0) -> tuple[str, ...]:
        """Returns the operators without an implementation that a node needs."""
        domain = own(node.domain)
        function = self.functions.get((domain, node.op_type, node.overload))
        known = find(node.op_type, domain, versions.get(domain, 1)) is not None
        if known and not (function is not None and domain == ""):
            return ()
        if (domain, node.op_type) == ("", "Constant"):
            return ()
        key = (domain, node.op_type, node.overload, *sorted(versions.items()))
        if key not in self.lacks:
            # Provisional, so that a recursive function ends.
            self.lacks[key] = (titled(domain, node.op_type),)
            body = expansion.function_body(node, versions, function)
            if body is not None and depth < DEEPEST:
                lacks = [self.missing(one, body.versions, depth + 1) for one in nested(body)]
                self.lacks[key] = tuple(dict.fromkeys(lack for found in lacks for lack in found))
        return self.lacks[key]


def _constants(proto: Any, versions: dict[str, int]) -> set[str]:
    """Returns the names of the float initializers that are not trained, as far as they are read."""
    fixed = set(declared_constants(proto))
    if proto.producer_name == PRODUCER:
        return fixed
    calls, tensors = list[Call](), dict[str, Any]()

    def visit(graph: Any) -> None:
        tensors.update((one.name, one) for one in graph.initializer if _trains(one))
        for node in ordered(graph.node):
            attributes: dict[str, Any] = {}
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    visit(attribute.g)
                    names = tuple(value.name for value in attribute.g.output)
                    attributes[attribute.name] = Program(attribute.g.name, (), names, ())
                elif attribute.type in (attribute.INT, attribute.INTS):
                    attributes[attribute.name] = plain(attribute, node.name)
            operator = find(node.op_type, node.domain, versions.get(own(node.domain), 1))
            operator = operator or Operator(node.op_type, node.domain, 1, _unknown)
            given = tuple(node.input), tuple(node.output)
            calls.append(Call(node.name, operator, *given, attributes, 1))

    visit(proto.graph)
    arrays = {}
    for name, tensor in tensors.items():
        with contextlib.suppress(ValueError):  # a large tensor, which was left out
            arrays[name] = to_array(tensor)
    shapes = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
    outputs = {value.name for value in proto.graph.output}
    inputs = {value.name for value in proto.graph.input} - set(tensors)
    return fixed | formulas.constants(calls, inputs, outputs, shapes, arrays)


def _trains(tensor: Any) -> bool:
    return NAMES.get(tensor.data_type) in TRAINABLE


def _unknown(*values: Any) -> Any:
    """Stands for an operator without an implementation, or for a function of the model."""
    raise NotImplementedError


def _described(attribute: Any, name: str) -> Any:
    if attribute.HasField("g"):
        return attribute.g.name
    if attribute.HasField("t"):
        return ValueInfo(
            attribute.t.name, tuple(attribute.t.dims), NAMES.get(attribute.t.data_type)
        )
    value = plain(attribute, name)
    return value.shape if isinstance(value, np.ndarray) else value


def _cells(layer: Layer) -> tuple[str, ...]:
    attributes = ", ".join(f"{name}={value}" for name, value in layer.attributes.items())
    return (
        _cut(layer.name),
        _cut(titled(layer.domain, layer.operator)),
        _cut(attributes),
        _cut(" ".join(_shape(value.shape) for value in layer.inputs)),
        _cut(" ".join(_shape(value.shape) for value in layer.outputs)),
        f"{layer.parameters:,}" if layer.parameters else "",
        "yes" if layer.supported else "NO",
    )


def _shape(shape: Any) -> str:
    if shape is None:
        return "?"
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
