"""A model's graph as a program: names made unique, functions expanded, operators looked up."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.onnx.ops.dtypes import NAMES
from jaxatr.onnx.ops.registry import Operator, find, own
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader import expansion
from jaxatr.onnx.reader.attributes import constant, plain
from jaxatr.onnx.reader.program import Call, NodeError, Program
from jaxatr.onnx.reader.proto import opsets, printable
from jaxatr.onnx.reader.tensors import to_array, to_dense

DEEPEST = 32
"""Levels of functions in functions, or of graphs in graphs."""

MOST = 1 << 16
"""Nodes after all functions are expanded."""

FIXED = "jaxatr.constants"
"""In a model's metadata: a JSON list of initializers that are not to be trained."""

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
      fixed: names of initializers that the file says are not to be trained.
      sources: what holds or makes a value: its ``TensorProto``, or its node if that has no other
        output. Nodes out of functions are copies.
    """

    program: Program
    initializers: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    fixed: frozenset[str] = frozenset()
    sources: dict[str, Any] = field(default_factory=dict)


def lower(proto: Any, folder: Path | None, *, complete: bool = True) -> Lowered:
    """Returns the model as a program.

    Args:
      proto: a ``ModelProto``.
      folder: where its file lies, or None.
      complete: whether operators without an implementation are an error, or left out.

    Raises:
      ValueError: the model is not well formed, or has operators without an implementation; the
        message names the nodes.
    """
    lowering = _Lowering(proto, folder)
    program = lowering.graph(proto.graph, {}, opsets(proto.opset_import), "")
    if lowering.missing and complete:
        raise ValueError(describe(lowering.missing))
    arrays = lowering.initializers, lowering.constants
    return Lowered(program, *arrays, _fixed(proto), lowering.sources)


def _fixed(proto: Any) -> frozenset[str]:
    for entry in proto.metadata_props:
        if entry.key == FIXED:
            try:
                names = json.loads(entry.value)
                return frozenset(name for name in names if isinstance(name, str))
            except (TypeError, ValueError) as error:
                raise ValueError(f"metadata {FIXED!r}: wanted a JSON list of names") from error
    return frozenset()


def describe(missing: Mapping[str, list[str]]) -> str:
    """Returns the message that lists every missing operator with its nodes."""
    lines = [
        printable(f"  {operator}: {', '.join(nodes)}")
        for operator, nodes in sorted(missing.items())
    ]
    return "\n".join(
        ["operators without an implementation (jaxatr.onnx.register adds one):", *lines]
    )


@dataclass
class _Scope:
    """Where a node stands.

    Attributes:
      names: of the file to those of the program, which are unique in the whole model; ``""`` for
        an optional input that a function was not given.
      versions: opset of each domain.
      prefix: of names that have to give way.
      define: makes a name of the program for a new name of the file.
      calls: those that came before.
    """

    names: dict[str, str]
    versions: dict[str, int]
    prefix: str
    define: Callable[[str, str], str]
    calls: list[Call]


@dataclass
class _UniqueNames:
    """The names of one kind that are taken.

    Attributes:
      taken: all of them.
      counts: how many names were made of one.
    """

    taken: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def fresh(self, name: str, prefix: str) -> str:
        """Returns a name that nothing else has, the given one where it is free."""
        made, longer = name, f"{prefix}/{name}".lstrip("/")
        while not made or made in self.taken:
            count = self.counts[longer] = self.counts.get(longer, 0) + 1
            made = longer if count == 1 else f"{longer}_{count}".lstrip("/")
        self.taken.add(made)
        return made


@dataclass
class _Lowering:
    """The state of one lowering: what names are taken, what has been found."""

    proto: Any
    folder: Path | None
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    values: _UniqueNames = field(default_factory=_UniqueNames)
    nodes: _UniqueNames = field(default_factory=_UniqueNames)
    arrays: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    depth: int = 0

    def __post_init__(self):
        functions = self.proto.functions
        self.functions = {(own(f.domain), f.name, f.overload): f for f in functions}
        if len(self.functions) < len(functions):
            raise ValueError("model: two of its functions have the same name")
        graph = self.proto.graph  # its names are kept; what is nested gives way
        taken = self.values.taken
        taken |= {value.name for value in graph.initializer} | {v.name for v in graph.input}
        taken |= {name for node in graph.node for name in node.output}

    @contextmanager
    def deeper(self, name: str) -> Iterator[None]:
        """Counts graphs in graphs and functions in functions."""
        if self.depth == DEEPEST:
            raise NodeError(f"node {name!r}: graphs or functions more than {DEEPEST} deep")
        self.depth += 1
        yield
        self.depth -= 1

    def once(self, read: Callable[..., Any], proto: Any, *more: Any) -> Any:
        """Returns the array of a proto, the same one for every call of a function."""
        if id(proto) not in self.arrays:
            self.arrays[id(proto)] = proto, read(proto, *more)  # kept, so is its id
        return self.arrays[id(proto)][1]

    def graph(
        self, graph: Any, outer: Mapping[str, str], versions: dict[str, int], prefix: str
    ) -> Program:
        """Returns a graph as a program; ``outer`` are the names around it, by their own."""
        local: set[str] = set()

        def define(name: str, what: str) -> str:
            if name in local:
                raise ValueError(f"graph {graph.name!r}: {what} {name!r} is defined twice")
            local.add(name)
            scope.names[name] = self.values.fresh(name, prefix) if prefix else name
            return scope.names[name]

        scope = _Scope(dict(outer), versions, prefix, define, [])
        for tensor in graph.initializer:
            made = define(tensor.name, "initializer")
            self.initializers[made] = self.once(to_array, tensor, self.folder)
            self.sources[made] = tensor
        for sparse in graph.sparse_initializer:
            made = define(sparse.values.name, "initializer")
            self.initializers[made] = self.once(to_dense, sparse, self.folder)
        # Before IR version 4 every initializer is listed among the inputs too.
        free = [value.name for value in graph.input if value.name not in local]
        inputs = tuple(define(name, "input") for name in free)
        for node in graph.node:
            self.node(node, scope)
        for value in graph.output:
            if not scope.names.get(value.name):
                raise ValueError(
                    f"graph {graph.name!r}: nothing computes its output {value.name!r}"
                )
        outputs = tuple(scope.names[value.name] for value in graph.output)
        return Program(graph.name, inputs, outputs, tuple(scope.calls))

    def node(self, node: Any, scope: _Scope) -> None:
        """Adds the calls that a node stands for."""
        if len(self.nodes.taken) == MOST:
            raise NodeError(f"node {node.name!r}: the model has more than {MOST} nodes, expanded")
        title = node.name or next((name for name in node.output if name), node.op_type)
        name = self.nodes.fresh(title, scope.prefix)
        for used in node.input:
            if used and used not in scope.names:
                raise NodeError(
                    f"node {name!r} ({node.op_type}): nothing before it computes its input {used!r}"
                )
        inputs = [scope.names[used] if used else "" for used in node.input]
        domain = own(node.domain)
        if (domain, node.op_type) == ("", "Constant"):
            value = self.once(constant, node, name, self.folder)
            made = scope.define(node.output[0], "output")
            self.constants[made], self.sources[made] = value, node
            return
        function = self.functions.get((domain, node.op_type, node.overload))
        operator = find(node.op_type, domain, scope.versions.get(domain, 1))
        # A model may define operators of ONNX anew; what a user registers for a domain of his own
        # comes before what the model says of it.
        if operator is not None and not (function is not None and domain == ""):
            scope.calls.append(self.call(node, name, operator, inputs, scope))
            return
        body = expansion.function_body(node, scope.versions, function)
        if body is not None:
            self.expand(node, body, inputs, name, scope)
            return
        self.missing.setdefault(f"{domain}.{node.op_type}".lstrip("."), []).append(name)
        for output in filter(None, node.output):
            scope.define(output, "output")

    def call(
        self, node: Any, name: str, operator: Operator, inputs: list[str], scope: _Scope
    ) -> Call:
        """Returns the call of a node whose operator has an implementation."""
        outputs = [scope.define(output, "output") if output else "" for output in node.output]
        if len(outputs) == 1 and outputs[0]:
            self.sources[outputs[0]] = node
        if (operator.domain, operator.name) == GRADIENT:
            attributes = _differentiated(node, name, scope)
        else:
            attributes = self.attributes(node, operator, scope, name)
        for names in (inputs, outputs):
            while names and not names[-1]:
                names.pop()
        _check_inputs(f"node {name!r} ({node.op_type})", operator, inputs, attributes)
        version = scope.versions.get(operator.domain, 1)
        return Call(name, operator, tuple(inputs), tuple(outputs), attributes, version)

    def attributes(self, node: Any, operator: Operator, scope: _Scope, name: str) -> dict[str, Any]:
        """Returns a node's attributes as keyword arguments, defaults left out."""
        found: dict[str, Any] = {}
        seen: set[str] = set()
        for attribute in node.attribute:
            key = attribute.name
            if key in seen:
                raise NodeError(f"node {name!r} ({node.op_type}): it has two attributes {key!r}")
            seen.add(key)
            if key in operator.ignored:
                continue
            if key not in operator.keywords or key in RESERVED:
                raise NodeError(f"node {name!r} ({node.op_type}): it has no attribute {key!r}")
            value: Any
            large = attribute.HasField("t") or attribute.HasField("sparse_tensor")
            if attribute.type == onnx.AttributeProto.GRAPH:
                with self.deeper(name):
                    inner = f"{name}/{key}"
                    value = self.graph(attribute.g, scope.names, scope.versions, inner)
            else:
                given = (attribute, name, self.folder)
                value = self.once(plain, *given) if large else plain(*given)
            if key in operator.dtypes:
                if value not in NAMES:
                    raise NodeError(f"node {name!r}: {key}: got {value}, wanted a type's number")
                value = NAMES[value]
            default = operator.keywords[key]
            if isinstance(value, np.ndarray) or type(value) is not type(default):
                found[key] = value
            elif value != default:
                found[key] = value
        return found

    def expand(
        self, node: Any, body: expansion.FunctionBody, inputs: list[str], name: str, scope: _Scope
    ) -> None:
        """Adds the calls of a function's body, in a scope of its own."""
        names = dict(zip(body.inputs, inputs, strict=False))
        names |= {absent: "" for absent in body.inputs[len(inputs) :]}
        results = dict(zip(body.outputs, node.output, strict=False))
        local: set[str] = set()

        def define(output: str, what: str) -> str:
            if output in local:
                raise NodeError(f"node {name!r} ({node.op_type}): {output!r} is defined twice")
            local.add(output)
            if results.get(output):
                names[output] = scope.define(results[output], what)
            else:
                names[output] = self.values.fresh(f"{name}/{output}", name)
            return names[output]

        with self.deeper(name):
            for inner in body.node:
                self.node(inner, _Scope(names, body.versions, name, define, scope.calls))
        for output, wanted in results.items():
            if wanted and output not in local:
                identity = find("Identity", "", 1)
                if not names.get(output) or identity is None:
                    raise NodeError(f"node {name!r} ({node.op_type}): no result {output!r}")
                passed = (names[output],), (scope.define(wanted, "output"),)
                scope.calls.append(Call(f"{name}/{output}", identity, *passed, {}, 1))


def _check_inputs(
    where: str, operator: Operator, inputs: list[str], attributes: Mapping[str, Any]
) -> None:
    """Checks that a function gets what it cannot do without, and no more than it takes."""
    operands = operator.operands
    if len(inputs) > len(operands) and not operator.variadic:
        raise NodeError(f"{where}: got {len(inputs)} inputs, wanted at most {len(operands)}")
    given = {operand for operand, name in zip(operands, inputs, strict=False) if name}
    for key, default in operator.keywords.items():
        if default is inspect.Parameter.empty and key not in {*given, *attributes, *RESERVED}:
            what = "input" if key in operands else "attribute"
            raise NodeError(f"{where}: it lacks the {what} {key!r}")
    for key in given.intersection(attributes):
        raise NodeError(f"{where}: {key!r} is an input and an attribute")


def _differentiated(node: Any, name: str, scope: _Scope) -> dict[str, Any]:
    """Returns the keywords of a ``Gradient`` node, which differentiates the graph before it."""
    named = {attribute.name: plain(attribute, name) for attribute in node.attribute}
    given, wanted = (*named.get("xs", ()), *named.get("zs", ())), named.get("y", "")
    if len(given) != len(node.input) or any(v not in scope.names for v in (*given, wanted)):
        raise NodeError(f"node {name!r} (Gradient): xs, zs and y name no values of the graph")
    inputs, needed, used = tuple(scope.names[v] for v in given), {scope.names[wanted]}, []
    for call in reversed(scope.calls):
        if needed.difference(inputs).intersection(call.outputs):
            used.append(call)
            needed.update(call.reads())
    body = Program(name, inputs, (scope.names[wanted],), tuple(reversed(used)))
    return {"body": body, "count": len(named.get("xs", ()))}
