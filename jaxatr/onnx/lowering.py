"""A model's graph as a program: names made unique, functions expanded, operators looked up."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.onnx import expansion
from jaxatr.onnx.ops.dtypes import NAMES
from jaxatr.onnx.package import onnx
from jaxatr.onnx.program import Call, NodeError, Program
from jaxatr.onnx.reading import opsets
from jaxatr.onnx.registry import Operator, find, own
from jaxatr.onnx.tensors import to_array, to_dense

DEEPEST = 32
"""Levels of functions in functions, or of graphs in graphs."""

MOST = 1 << 16
"""Nodes after all functions are expanded."""

GRADIENT = ("ai.onnx.preview.training", "Gradient")

RESERVED = ("opset", "outputs", "rng", "training")
"""Keywords that are the importer's to give, and no attributes."""


@dataclass
class Lowered:
    """A whole model.

    Attributes:
      program: its calls.
      initializers: the tensors that the graph, or a subgraph, lists.
      constants: the values of its ``Constant`` nodes.
      missing: operators without an implementation, to the names of their nodes.
    """

    program: Program
    initializers: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    missing: dict[str, list[str]]


def lower(proto: Any, folder: Path | None) -> Lowered:
    """Returns the model as a program.

    Raises:
      ValueError: the model is not well formed, or has operators without an implementation; the
        message names the nodes.
    """
    lowering = _Lowering(proto, folder)
    program = lowering.graph(proto.graph, {}, opsets(proto.opset_import), "", inputs=True)
    if lowering.missing:
        raise ValueError(describe(lowering.missing))
    return Lowered(program, lowering.initializers, lowering.constants, lowering.missing)


def describe(missing: Mapping[str, list[str]]) -> str:
    """Returns the message that lists every missing operator with its nodes."""
    lines = [f"  {operator}: {', '.join(nodes)}" for operator, nodes in sorted(missing.items())]
    return "\n".join(
        ["operators without an implementation (jaxatr.onnx.register adds one):", *lines]
    )


@dataclass
class _Lowering:
    """The state of one lowering: what names are taken, what has been found."""

    proto: Any
    folder: Path | None
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    depth: int = 0

    def __post_init__(self):
        self.functions = {
            (own(f.domain), f.name, getattr(f, "overload", "")): f for f in self.proto.functions
        }
        if len(self.functions) < len(self.proto.functions):
            raise ValueError("model: two of its functions have the same name")
        graph = self.proto.graph  # its names are kept; what is nested gives way
        self.taken |= {value.name for value in graph.initializer} | {v.name for v in graph.input}
        self.taken |= {name for node in graph.node for name in node.output}

    @contextmanager
    def deeper(self, name: str) -> Iterator[None]:
        """Counts graphs in graphs and functions in functions."""
        if self.depth == DEEPEST:
            raise NodeError(f"node {name!r}: graphs or functions more than {DEEPEST} deep")
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, name: str, prefix: str, taken: set[str]) -> str:
        """Returns a name that nothing else has, the given one where it is free."""
        made, count = name, 1
        while not made or made in taken:
            made = f"{prefix}/{name}" if count == 1 else f"{prefix}/{name}_{count}"
            made, count = made.lstrip("/"), count + 1
        taken.add(made)
        return made

    def graph(
        self,
        graph: Any,
        outer: Mapping[str, str],
        versions: dict,
        prefix: str,
        inputs: bool = False,
    ) -> Program:
        """Returns a graph as a program; ``outer`` are the names around it, by their own."""
        scope, own_names = dict(outer), set()

        def define(name: str, what: str) -> str:
            if name in own_names:
                raise ValueError(f"graph {graph.name!r}: {what} {name!r} is defined twice")
            own_names.add(name)
            scope[name] = self.fresh(name, prefix, self.taken) if prefix else name
            return scope[name]

        for tensor in graph.initializer:
            self.initializers[define(tensor.name, "initializer")] = to_array(tensor, self.folder)
        for sparse in graph.sparse_initializer:
            self.initializers[define(sparse.values.name, "initializer")] = to_dense(sparse)
        # Before IR version 4 every initializer is listed among the inputs too.
        free = [value.name for value in graph.input if value.name not in own_names]
        names = tuple(define(name, "input") for name in free)
        calls: list[Call] = []
        for node in graph.node:
            self.node(node, scope, versions, prefix, calls, define)
        for value in graph.output:
            if value.name not in scope:
                raise ValueError(
                    f"graph {graph.name!r}: nothing computes its output {value.name!r}"
                )
        outputs = tuple(scope[value.name] for value in graph.output)
        return Program(graph.name, names, outputs, tuple(calls))

    def node(
        self,
        node: Any,
        scope: dict[str, str],
        versions: dict,
        prefix: str,
        calls: list,
        define: Any,
    ) -> None:
        """Adds the calls that a node stands for."""
        if len(self.nodes) == MOST:
            raise NodeError(f"node {node.name!r}: the model has more than {MOST} nodes, expanded")
        title = node.name or next((name for name in node.output if name), node.op_type)
        name = self.fresh(title, prefix, self.nodes)
        for used in node.input:
            if used and used not in scope:
                raise NodeError(
                    f"node {name!r} ({node.op_type}): nothing before it computes its input {used!r}"
                )
        inputs = tuple(scope[used] if used else "" for used in node.input)
        if (own(node.domain), node.op_type) == ("", "Constant"):
            self.constants[define(node.output[0], "output")] = constant(node, name)
            return
        function = self.functions.get(
            (own(node.domain), node.op_type, getattr(node, "overload", ""))
        )
        operator = find(node.op_type, node.domain, self.version(node, versions, function))
        if operator is None or (function is not None and operator.domain == ""):
            body = expansion.body(node, versions, function)
            if body is None:
                title = f"{own(node.domain)}.{node.op_type}".lstrip(".")
                self.missing.setdefault(title, []).append(name)
                for output in node.output:
                    define(output, "output") if output else None
                return
            self.expand(node, body, inputs, name, calls, define)
            return
        outputs = [define(output, "output") if output else "" for output in node.output]
        if (operator.domain, operator.name) == GRADIENT:
            attributes = differentiated(node, name, scope, calls)
        else:
            attributes = self.attributes(node, operator, scope, versions, name)
        calls.append(self.call(node, name, operator, inputs, tuple(outputs), attributes, versions))

    def call(self, node, name, operator, inputs, outputs, attributes, versions) -> Call:
        """Returns the call of a node whose operator has an implementation."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        if len(inputs) > len(operator.operands) and not operator.variadic:
            raise NodeError(
                f"node {name!r} ({node.op_type}): got {len(inputs)} inputs, "
                f"wanted at most {len(operator.operands)}"
            )
        while outputs and not outputs[-1]:
            outputs = outputs[:-1]
        version = versions.get(own(node.domain), operator.since)
        return Call(name, operator, inputs, outputs, attributes, version)

    def version(self, node: Any, versions: dict, function: Any) -> int:
        """Returns the opset that a node is written in."""
        domain = own(node.domain)
        if domain in versions:
            return versions[domain]
        if domain == "":
            return 1 if not versions else max(versions.values())
        return 1 << 30

    def attributes(self, node, operator: Operator, scope, versions, name: str) -> dict[str, Any]:
        """Returns a node's attributes as keyword arguments, defaults left out."""
        found: dict[str, Any] = {}
        value: Any
        for attribute in node.attribute:
            key = attribute.name
            if key in operator.ignored:
                continue
            if key not in operator.keywords or key in RESERVED:
                raise NodeError(f"node {name!r} ({node.op_type}): it has no attribute {key!r}")
            if attribute.type == onnx.AttributeProto.GRAPH:
                with self.deeper(name):
                    value = self.graph(attribute.g, scope, versions, f"{name}/{key}")
            else:
                value = plain(attribute, name)
            if key in operator.dtypes:
                if value not in NAMES:
                    raise NodeError(f"node {name!r}: {key}: got {value}, wanted a type's number")
                value = NAMES[value]
            default = operator.keywords[key]
            if (
                type(value) is not type(default)
                or isinstance(value, np.ndarray)
                or value != default
            ):
                found[key] = value
        return found

    def expand(self, node, body: "expansion.Body", inputs, name: str, calls, define) -> None:
        """Adds the calls of a function's body, in a scope of its own."""
        scope = dict(zip(body.inputs, inputs, strict=False))
        scope |= {absent: "" for absent in body.inputs[len(inputs) :]}
        results = dict(zip(body.outputs, node.output, strict=False))
        local: set[str] = set()

        def define_inside(output: str, what: str) -> str:
            if output in local:
                raise NodeError(f"node {name!r} ({node.op_type}): {output!r} is defined twice")
            local.add(output)
            if results.get(output):
                scope[output] = define(results[output], what)
            else:
                scope[output] = self.fresh(f"{name}/{output}", name, self.taken)
            return scope[output]

        with self.deeper(name):
            for inner in body.nodes:
                self.node(inner, scope, body.versions, name, calls, define_inside)
        for output, wanted in results.items():
            if wanted and output not in local:
                identity = find("Identity", "", 1)
                if not scope.get(output) or identity is None:
                    raise NodeError(f"node {name!r} ({node.op_type}): no result {output!r}")
                renamed = (define(wanted, "output"),)
                calls.append(Call(f"{name}/{output}", identity, (scope[output],), renamed, {}, 1))


def differentiated(node: Any, name: str, scope: Mapping[str, str], calls: list[Call]) -> dict:
    """Returns the keywords of a ``Gradient`` node, which differentiates the graph before it."""
    named = {attribute.name: plain(attribute, name) for attribute in node.attribute}
    given, wanted = (*named.get("xs", ()), *named.get("zs", ())), named.get("y", "")
    if len(given) != len(node.input) or any(v not in scope for v in (*given, wanted)):
        raise NodeError(f"node {name!r} (Gradient): xs, zs and y name no values of the graph")
    inputs, needed, used = tuple(scope[v] for v in given), {scope[wanted]}, []
    for call in reversed(calls):
        if needed.difference(inputs).intersection(call.outputs):
            used.append(call)
            needed.update(call.reads())
    body = Program(name, inputs, (scope[wanted],), tuple(reversed(used)))
    return {"body": body, "count": len(named.get("xs", ()))}


def plain(attribute: Any, name: str) -> Any:
    """Returns an attribute's value in Python: numbers, strings, tuples of them, or an array."""
    kinds = onnx.AttributeProto
    if attribute.ref_attr_name:
        raise NodeError(
            f"node {name!r}: {attribute.name!r} refers to an attribute out of a function"
        )
    if attribute.type == kinds.FLOAT:
        return shortest(attribute.f)
    if attribute.type == kinds.INT:
        return attribute.i
    if attribute.type == kinds.STRING:
        return attribute.s.decode("utf-8", "surrogateescape")
    if attribute.type == kinds.FLOATS:
        return tuple(shortest(number) for number in attribute.floats)
    if attribute.type == kinds.INTS:
        return tuple(attribute.ints)
    if attribute.type == kinds.STRINGS:
        return tuple(text.decode("utf-8", "surrogateescape") for text in attribute.strings)
    if attribute.type == kinds.TENSOR:
        return to_array(attribute.t)
    if attribute.type == kinds.SPARSE_TENSOR:
        return to_dense(attribute.sparse_tensor)
    if attribute.type == kinds.TYPE_PROTO:
        return attribute.tp
    raise NodeError(f"node {name!r}: attribute {attribute.name!r} has type {attribute.type}")


def shortest(number: float) -> float:
    """Returns the shortest decimal number that is the same in float32, which attributes have.

    >>> shortest(9.999999747378752e-06)
    1e-05
    """
    return float(str(np.float32(number)))


def constant(node: Any, name: str) -> np.ndarray:
    """Returns the value of a ``Constant`` node.

    Raises:
      ValueError: it has not exactly one.
    """
    if len(node.attribute) != 1 or len(node.output) != 1:
        raise NodeError(f"node {name!r} (Constant): wanted one attribute and one output")
    attribute = node.attribute[0]
    value = plain(attribute, name)
    if attribute.name in ("value", "sparse_value"):
        return value
    types = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64}
    types |= {"value_ints": np.int64, "value_string": object, "value_strings": object}
    if attribute.name not in types:
        raise NodeError(f"node {name!r} (Constant): it has no attribute {attribute.name!r}")
    if attribute.name == "value_string":
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return np.array(value, types[attribute.name])
