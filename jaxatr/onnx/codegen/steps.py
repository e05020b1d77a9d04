"""Converts calls to the steps of a module: layers with their weights, and operator calls."""

import typing
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxatr.onnx import ops
from jaxatr.onnx.codegen import recognition
from jaxatr.onnx.codegen.source import PLAIN
from jaxatr.onnx.ops.registry import Operator
from jaxatr.onnx.reader.program import Call, Program
from jaxatr.onnx.reader.variables import calls_of, deciding, uses

SMALL = 16
"""Constants of up to this many elements are written in the source."""


class Local(NamedTuple):
    """An operand that is an input or a computed value."""

    name: str


class Weight(NamedTuple):
    """An operand from the weights file: its collection, name in the model, shape and type."""

    collection: str
    name: str
    shape: tuple[int, ...]
    dtype: str


class Constant(NamedTuple):
    """An operand written in the source, as plain numbers if it determines a shape (``static``)."""

    name: str
    value: np.ndarray
    static: bool


Operand: TypeAlias = Local | Weight | Constant | None


@dataclass
class Step:
    """One statement of a generated method.

    Attributes:
      function: an operator's function, a layer's class or a block's title; ``weight`` or ``key``
        for one that is read once and used several times.
      targets: names of the values that it computes, ``""`` for unused ones.
      operands: its operands.
      options: settings of a layer, or keywords of an operator.
      weights: weights that a layer owns, by their names in the layer.
      hint: name in the graph.
      kind: ``operator``, ``layer``, ``weight``, ``key`` or ``block``.
      trains: whether it behaves differently in training.
      draws: whether it takes a random key.
      results: ``one``, ``all`` (a tuple of exactly the targets), ``more`` (a longer tuple) or
        ``first`` (possibly a tuple that begins with the target).
      subgraphs: local functions, by keyword.
      operator: the operator, if there is one.
      block: for a block, the body and the index of the instance.
    """

    function: str
    targets: tuple[str, ...]
    operands: tuple[Operand, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    hint: str = ""
    kind: str = "operator"
    trains: bool = False
    draws: bool = False
    results: str = "one"
    subgraphs: dict[str, "StepGraph"] = field(default_factory=dict)
    operator: Operator | None = None
    block: Any = None


@dataclass
class StepGraph:
    """Steps with the names of their inputs, and their outputs."""

    inputs: tuple[str, ...]
    outputs: tuple[Operand, ...]
    steps: list[Step]


def graph_of(
    program: Program,
    known: Mapping[str, np.ndarray],
    variables: Mapping[str, Mapping[str, Any]],
) -> StepGraph:
    """Converts a program to steps."""
    return _StepMaker(program, known, variables).read()


class _StepMaker:
    def __init__(self, program: Program, known: Mapping, variables: Mapping):
        self.uses = uses(program)
        inner = [(g, c) for c in calls_of(program) for g in c.subgraphs()]
        program = self.program = _trimmed(program, self.uses)
        self.consumers = {name: call for call in program.calls for name in call.inputs}
        self.weights = {
            name: Weight(collection, name, tuple(value.shape), value.dtype.name)
            for collection, arrays in variables.items()
            for name, value in arrays.items()
        }
        # A value that a subgraph reads may determine a shape there.
        kept = deciding(program) | {
            name for g, _ in inner for c in calls_of(g) for name in c.inputs
        }
        kept |= {name for _, c in inner for name in c.inputs}
        self.known = {}
        for name, value in known.items():
            if name in kept or value.size <= SMALL or value.dtype.name not in PLAIN:
                self.known[name] = value
            else:
                self.weights[name] = Weight("constants", name, value.shape, value.dtype.name)
        self.declared: set[str] = set()
        self.done: set[str] = set()
        self.fetched: list[Step] = []  # placed at the model's start, where they split no blocks

    def read(self) -> StepGraph:
        steps: list[Step] = []
        for call in self.program.calls:
            self.add(call, steps)
        outputs = tuple(self.operand(name, steps) for name in self.program.outputs)
        return StepGraph(self.program.inputs, outputs, [*self.fetched, *steps])

    def add(self, call: Call, steps: list[Step]) -> None:
        """Adds the steps of a call of the main graph."""
        if call.name in self.done:
            return
        layer = recognition.recognised(call, self.exclusive, self.follower, self.known)
        if layer is None:
            steps.append(self.applied(call, steps, steps))
            return
        self.done.update(used.name for used in layer.calls)
        last = layer.calls[-1]
        steps.append(
            Step(
                layer.layer,
                last.outputs,
                tuple(self.operand(name, steps) for name in layer.operands),
                layer.options,
                {leaf: self.weights[name] for leaf, name in layer.weights.items()},
                call.name if call.name not in call.outputs else "",
                "layer",
                trains="training" in call.operator.keywords,
                results="all" if len(last.outputs) > 1 else "one",
            )
        )

    def exclusive(self, name: str) -> Weight | None:
        """Returns the weight with a name if only one call uses it, else None."""
        return self.weights.get(name) if self.uses[name] == 1 else None

    def follower(self, call: Call) -> Call | None:
        """Returns the only call that uses the only result of a call, or None."""
        (output, *more) = call.outputs
        return self.consumers.get(output) if self.uses[output] == 1 and not more else None

    def applied(self, call: Call, steps: list[Step], top: list[Step]) -> Step:
        """Returns the step of an operator call; steps that read its keys are added to ``top``."""
        operator = call.operator
        inside = steps is not top
        subgraphs = {
            key: self.subgraph(value, top)
            for key, value in call.attributes.items()
            if isinstance(value, Program)
        }
        static = set(operator.positions(operator.static, len(call.inputs)))
        operands = tuple(
            self.operand(name, top, i in static, inside) for i, name in enumerate(call.inputs)
        )
        step = Step(
            function_of(operator),
            call.outputs,
            operands,
            {k: v for k, v in call.keywords().items() if not _is_default(operator, k, v)},
            trains="training" in operator.keywords,
            draws="rng" in operator.keywords,
            results=results_of(operator, call),
            subgraphs=subgraphs,
            operator=operator,
        )
        if step.draws and inside:  # flax cannot make keys inside a function that jax traces
            drawn = f"key of {call.name}"
            top.append(Step("key", (drawn,), kind="key"))
            step.options["rng"], step.draws = Local(drawn), False
        return step

    def subgraph(self, program: Program, top: list[Step]) -> StepGraph:
        steps: list[Step] = []
        for call in program.calls:
            steps.append(self.applied(call, steps, top))
        outputs = tuple(self.operand(name, top, False, True) for name in program.outputs)
        return StepGraph(program.inputs, outputs, steps)

    def operand(
        self, name: str, top: list[Step], static: bool = False, inside: bool = False
    ) -> Operand:
        """Returns an operand; adds a step that reads a weight used twice or in a local function."""
        if not name:
            return None
        if name in self.known:
            return Constant(name, self.known[name], static)
        if name not in self.weights:
            return Local(name)
        weight = self.weights[name]
        if self.uses[name] == 1 and not inside:
            return weight
        if name not in self.declared:
            self.declared.add(name)
            self.fetched.append(Step("weight", (name,), (weight,), kind="weight"))
        return Local(name)


def _trimmed(program: Program, uses: Counter) -> Program:
    """Returns a program whose calls leave out unused trailing results."""
    calls = []
    for call in program.calls:
        outputs, operator = call.outputs, call.operator
        # What an operator of the user returns may depend on the number of its outputs.
        told = "outputs" in operator.keywords and function_of(operator).startswith("ops.")
        trims = told and not operator.counted and not call.subgraphs()
        while trims and len(outputs) > 1 and not uses[outputs[-1]]:
            outputs = outputs[:-1]
        calls.append(replace(call, outputs=outputs))
    return replace(program, calls=tuple(calls))


def _is_default(operator: Operator, key: str, value: Any) -> bool:
    """Returns whether a keyword has its default or is ``type`` of an optional, which is unused."""
    if operator.function is ops.optional:
        return True
    default = operator.keywords[key]
    return type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def function_of(operator: Operator) -> str:
    """Returns ``ops.name``, or the operator's registry key if its function is not public."""
    name = operator.function.__name__
    if getattr(ops, name, None) is operator.function:
        return f"ops.{name}"
    return f"{operator.domain}:{operator.name}:{operator.since}"


def results_of(operator: Operator, call: Call) -> str:
    """Returns the form of a call's results, for ``Step.results``."""
    count = len(call.outputs)
    if not function_of(operator).startswith("ops."):
        return "more" if count > 1 else "first"
    declared = typing.get_type_hints(operator.function).get("return")
    if typing.get_origin(declared) is tuple:
        kinds = typing.get_args(declared)
        if count == 1:
            return "first"
        return "all" if len(kinds) == count and ... not in kinds else "more"
    exact = "outputs" in operator.keywords
    if operator.function in (ops.if_, ops.loop, ops.scan, ops.scan_batch):
        returned = len(call.subgraphs()[0].outputs) - (operator.function is ops.loop)
        exact = returned == count
    elif count == 1:
        exact = not operator.statistics
    if count == 1:
        return "one" if exact else "first"
    return "all" if exact else "more"
