"""Lowers a model's graph to a program: unique names, expanded functions, resolved operators."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.onnx.ops.control import loop
from jaxatr.onnx.ops.dtypes import NAMES
from jaxatr.onnx.ops.ml import labelled
from jaxatr.onnx.ops.registry import Operator, find, own, titled
from jaxatr.onnx.ops.trees import Tabled
from jaxatr.onnx.package import PRODUCER, onnx
from jaxatr.onnx.reader import expansion
from jaxatr.onnx.reader.attributes import constant, numbers, plain
from jaxatr.onnx.reader.names import UniqueNames
from jaxatr.onnx.reader.program import Call, NodeError, Program
from jaxatr.onnx.reader.proto import opsets, ordered, printable, value_info
from jaxatr.onnx.reader.tables import in_tables, own_operator
from jaxatr.onnx.reader.tensors import to_array, to_dense

DEEPEST = 32
"""Maximum nesting depth of functions or of subgraphs."""

MOST = 1 << 16
"""Maximum number of nodes after all functions are expanded."""

FIXED = "jaxatr.constants"
"""Metadata key of a JSON list with the names of the initializers that are not trained."""

GRADIENT = ("ai.onnx.preview.training", "Gradient")

RESERVED = ("condition_shape", "number_shape", "opset", "outputs", "rng", "training")
"""Keywords that the importer fills in; a node's attributes may not have these names."""


@dataclass
class Lowered:
    """A model as a program with its arrays.

    Attributes:
      program: the calls.
      initializers: the initializers of the graph and its subgraphs, by name.
      constants: the values of the ``Constant`` nodes, by name.
      fixed: names of the initializers that the file marks as not trained.
      declared: whether the file says of every initializer whether it is trained.
      sources: the proto that defines each value: a ``TensorProto``, or a node with this single
        output. Nodes from functions are copies.
    """

    program: Program
    initializers: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]
    fixed: frozenset[str] = frozenset()
    declared: bool = False
    sources: dict[str, Any] = field(default_factory=dict)


def lower(proto: Any, folder: Path | None, *, complete: bool = True) -> Lowered:
    """Lowers a model to a program.

    Args:
      proto: a ``ModelProto``.
      folder: folder of its file, or None.
      complete: whether an operator without an implementation is an error; otherwise it is left
        out.

    Raises:
      ValueError: the model is malformed, or has operators without an implementation; the message
        names the nodes.
    """
    lowering = _Lowering(proto, folder)
    program = lowering.graph(proto.graph, {}, opsets(proto.opset_import), "")
    if lowering.missing and complete:
        raise ValueError(describe(lowering.missing))
    arrays = lowering.initializers, lowering.constants
    declared = proto.producer_name == PRODUCER
    return Lowered(program, *arrays, declared_constants(proto), declared, lowering.sources)


def declared_constants(proto: Any) -> frozenset[str]:
    """Returns the names of the initializers that a file declares as not trained.

    Raises:
      ValueError: the declaration is not a JSON list.
    """
    for entry in proto.metadata_props:
        if entry.key == FIXED:
            try:
                names = json.loads(entry.value)
                return frozenset(name for name in names if isinstance(name, str))
            except (TypeError, ValueError) as error:
                raise ValueError(f"metadata {FIXED!r}: wanted a JSON list of names") from error
    return frozenset()


def describe(missing: Mapping[str, list[str]]) -> str:
    """Returns the error message that lists every missing operator with its nodes."""
    lines = [
        printable(f"  {operator}: {', '.join(nodes)}")
        for operator, nodes in sorted(missing.items())
    ]
    return "\n".join(
        ["operators without an implementation (jaxatr.onnx.register adds one):", *lines]
    )


@dataclass
class _Scope:
    """The scope of a node: a graph or the body of a function.

    Attributes:
      names: maps the file's names to the program's, which are unique in the whole model; ``""`` for
        an optional input that the caller of a function left out.
      versions: opset version of each domain.
      prefix: prefix for names that are already taken.
      define: adds a name from the file and returns the program's name for it.
      calls: the calls so far.
    """

    names: dict[str, str]
    versions: dict[str, int]
    prefix: str
    define: Callable[[str, str], str]
    calls: list[Call]


@dataclass
class _Lowering:
    """The state of one lowering."""

    proto: Any
    folder: Path | None
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    values: UniqueNames = field(default_factory=UniqueNames)
    nodes: UniqueNames = field(default_factory=UniqueNames)
    arrays: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    depth: int = 0

    def __post_init__(self):
        functions = self.proto.functions
        self.functions = {(own(f.domain), f.name, f.overload): f for f in functions}
        if len(self.functions) < len(functions):
            raise ValueError("model: two of its functions have the same name")
        graph = self.proto.graph  # its names are kept; nested names give way
        taken = self.values.taken
        taken |= {value.name for value in graph.initializer} | {v.name for v in graph.input}
        taken |= {name for node in graph.node for name in node.output}

    @contextmanager
    def deeper(self, name: str) -> Iterator[None]:
        """Enters a subgraph or function; raises an error if they are nested too deeply."""
        if self.depth == DEEPEST:
            raise NodeError(
                f"node {name!r}: subgraphs or functions nested more than {DEEPEST} deep"
            )
        self.depth += 1
        yield
        self.depth -= 1

    def once(self, read: Callable[..., Any], proto: Any, *more: Any) -> Any:
        """Returns the array of a proto, shared by all calls of a function."""
        if id(proto) not in self.arrays:
            # The proto is stored too: while it is alive, no other object gets its id.
            self.arrays[id(proto)] = proto, read(proto, *more)
        return self.arrays[id(proto)][1]

    def graph(
        self, graph: Any, outer: Mapping[str, str], versions: dict[str, int], prefix: str
    ) -> Program:
        """Lowers a graph; ``outer`` maps names of the enclosing graph to the program's."""
        local: set[str] = set()

        def define(name: str, what: str) -> str:
            if name in local:
                raise ValueError(f"graph {graph.name!r}: {what} {name!r} is defined twice")
            local.add(name)
            scope.names[name] = self.values.fresh(name, prefix) if prefix else name
            return scope.names[name]

        scope = _Scope(dict(outer), versions, prefix, define, [])
        for tensor in graph.initializer:
            unique = define(tensor.name, "initializer")
            self.initializers[unique] = self.once(to_array, tensor, self.folder)
            self.sources[unique] = tensor
        for sparse in graph.sparse_initializer:
            unique = define(sparse.values.name, "initializer")
            self.initializers[unique] = self.once(to_dense, sparse, self.folder)
        # Before IR version 4 every initializer is also listed as an input.
        free = [value.name for value in graph.input if value.name not in local]
        inputs = tuple(define(name, "input") for name in free)
        for node in ordered(graph.node):
            self.node(node, scope)
        for value in graph.output:
            if not scope.names.get(value.name):
                raise ValueError(
                    f"graph {graph.name!r}: nothing computes its output {value.name!r}"
                )
        outputs = tuple(scope.names[value.name] for value in graph.output)
        return Program(graph.name, inputs, outputs, tuple(scope.calls))

    def node(self, node: Any, scope: _Scope) -> None:
        """Adds the calls of a node."""
        if len(self.nodes.taken) == MOST:
            raise NodeError(
                f"node {node.name!r}: the model has more than {MOST} nodes after expansion"
            )
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
            unique = scope.define(node.output[0], "output")
            self.constants[unique], self.sources[unique] = value, node
            return
        function = self.functions.get((domain, node.op_type, node.overload))
        operator = find(node.op_type, domain, scope.versions.get(domain, 1))
        # A function of the model may redefine one of ONNX's standard operators. In other domains
        # a registered implementation takes precedence over the model's function.
        if operator is not None and not (function is not None and domain == ""):
            scope.calls += self.calls(node, name, operator, inputs, scope)
            return
        body = expansion.function_body(node, scope.versions, function)
        if body is not None:
            self.expand(node, body, inputs, name, scope)
            return
        self.missing.setdefault(titled(domain, node.op_type), []).append(name)
        for output in filter(None, node.output):
            scope.define(output, "output")

    def calls(
        self, node: Any, name: str, operator: Operator, inputs: list[str], scope: _Scope
    ) -> list[Call]:
        """Returns the call for a node whose operator has an implementation.

        Labels that are strings, which cannot be compiled, are put in by a second call.
        """
        outputs = [scope.define(output, "output") if output else "" for output in node.output]
        if len(outputs) == 1 and outputs[0]:
            self.sources[outputs[0]] = node
        if (operator.domain, operator.name) == GRADIENT:
            attributes = _differentiated(node, name, scope)
        else:
            attributes = self.attributes(node, operator, scope, name)
        for names in (inputs,) if operator.counted else (inputs, outputs):
            while names and not names[-1]:
                names.pop()
        _check_inputs(f"node {name!r} ({node.op_type})", operator, inputs, attributes)
        version = scope.versions.get(operator.domain, 1)
        further = []
        strings, integers = operator.labels or ("", "")
        if texts := attributes.pop(strings, ()):
            attributes[integers] = tuple(range(len(texts)))
            if outputs and outputs[0]:
                best = self.values.fresh(f"{name}/class", name)
                wanted = (best,), (outputs[0],)
                further.append(
                    Call(f"{name}/labels", own_operator(labelled), *wanted, {"labels": texts}, 1)
                )
                outputs[0] = best
        if isinstance(operator.function, Tabled):
            operator, arrays, attributes = in_tables(
                node.op_type, operator.function, name, attributes
            )
            inputs += [self.array(f"{name}/{key}", name, value) for key, value in arrays]
        return [Call(name, operator, tuple(inputs), tuple(outputs), attributes, version), *further]

    def array(self, wanted: str, prefix: str, value: np.ndarray | None) -> str:
        """Returns the name of a new constant; an empty one if there is none."""
        if value is None:
            return ""
        unique = self.values.fresh(wanted, prefix)
        self.constants[unique] = value
        return unique

    def attributes(self, node: Any, operator: Operator, scope: _Scope, name: str) -> dict[str, Any]:
        """Returns a node's attributes as keyword arguments, except those equal to the default."""
        keywords: dict[str, Any] = {}
        seen: set[str] = set()
        for attribute in node.attribute:
            key = attribute.name
            if key in seen:
                raise NodeError(f"node {name!r} ({node.op_type}): two attributes are named {key!r}")
            seen.add(key)
            if key in operator.ignored:
                continue
            key = dict(operator.renamed).get(key, key)
            if key not in operator.keywords or key in RESERVED:
                raise NodeError(
                    f"node {name!r} ({node.op_type}): the operator has no attribute {key!r}"
                )
            value: Any
            large = attribute.HasField("t") or attribute.HasField("sparse_tensor")
            if attribute.type == onnx.AttributeProto.GRAPH:
                with self.deeper(name):
                    inner = f"{name}/{key}"
                    value = self.graph(attribute.g, scope.names, scope.versions, inner)
                if operator.function is loop:
                    keywords |= _loop_shapes(attribute.g)
            elif isinstance(operator.function, Tabled) and key not in operator.labels:
                value = numbers(attribute, name, self.folder)
            else:
                given = (attribute, name, self.folder)
                value = self.once(plain, *given) if large else plain(*given)
            if key in operator.dtypes:
                if value not in NAMES:
                    raise NodeError(
                        f"node {name!r}: {key}: got {value}, wanted the number of a data type"
                    )
                value = NAMES[value]
            default = operator.keywords[key]
            if isinstance(value, np.ndarray) or type(value) is not type(default):
                keywords[key] = value
            elif value != default:
                keywords[key] = value
        return keywords

    def expand(
        self, node: Any, body: expansion.FunctionBody, inputs: list[str], name: str, scope: _Scope
    ) -> None:
        """Adds the calls of a function's body, in a new scope."""
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
                    raise NodeError(
                        f"node {name!r} ({node.op_type}): nothing computes its output {output!r}"
                    )
                passed = (names[output],), (scope.define(wanted, "output"),)
                scope.calls.append(Call(f"{name}/{output}", identity, *passed, {}, 1))


def _check_inputs(
    where: str, operator: Operator, inputs: list[str], attributes: Mapping[str, Any]
) -> None:
    """Checks that a function gets all required arguments and no unexpected ones."""
    operands = operator.operands
    if len(inputs) > len(operands) and not operator.variadic:
        raise NodeError(f"{where}: got {len(inputs)} inputs, wanted at most {len(operands)}")
    given = {operand for operand, name in zip(operands, inputs, strict=False) if name}
    free = {*given, *attributes, *RESERVED, *operator.optional}
    for key, default in operator.keywords.items():
        if default is inspect.Parameter.empty and key not in free:
            what = "input" if key in operands else "attribute"
            raise NodeError(f"{where}: it lacks the {what} {key!r}")
    for key in given.intersection(attributes):
        raise NodeError(f"{where}: {key!r} is given both as an input and as an attribute")


def _loop_shapes(body: Any) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a loop's iteration number and condition, if the body declares [1]."""
    names = zip(("number_shape", "condition_shape"), body.input, strict=False)
    return {name: (1,) for name, value in names if len(value_info(value).shape or ()) == 1}


def _differentiated(node: Any, name: str, scope: _Scope) -> dict[str, Any]:
    """Returns the keywords of a ``Gradient`` node, which differentiates the graph up to it."""
    named = {attribute.name: plain(attribute, name) for attribute in node.attribute}
    given, wanted = (*named.get("xs", ()), *named.get("zs", ())), named.get("y", "")
    if len(given) != len(node.input) or any(v not in scope.names for v in (*given, wanted)):
        raise NodeError(f"node {name!r} (Gradient): xs, zs and y must name values of the graph")
    inputs, needed, used = tuple(scope.names[v] for v in given), {scope.names[wanted]}, []
    for call in reversed(scope.calls):
        if needed.difference(inputs).intersection(call.outputs):
            used.append(call)
            needed.update(call.reads())
    body = Program(name, inputs, (scope.names[wanted],), tuple(reversed(used)))
    return {"body": body, "count": len(named.get("xs", ()))}
