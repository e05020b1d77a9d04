"""The intermediate representation: calls, which are run here and printed by the generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxatr.onnx.ops.registry import Operator
from jaxatr.onnx.ops.values import EAGER, hold_strings, is_strings
from jaxatr.onnx.reader import layout, narrowing


@dataclass(frozen=True)
class ValueInfo:
    """Name, shape and type of a value, as far as the model declares them.

    Attributes:
      name: name in the model.
      shape: a number, a symbol or None (unknown) for each dimension; None if the rank is unknown
        or the value is not a tensor.
      dtype: NumPy's name of the type (``"str"`` for strings); None if the value is not a tensor.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None


@dataclass(frozen=True)
class Call:
    """One application of an operator's function.

    Attributes:
      name: name of the node, unique in the model.
      operator: the operator whose function is called.
      inputs: names of values, ``""`` for an absent optional input.
      outputs: names of values, ``""`` for an unused output.
      attributes: keyword arguments that differ from the function's defaults; a subgraph is a
        :class:`Program`.
      opset: version of the operator's domain in the model.
    """

    name: str
    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    def subgraphs(self) -> list["Program"]:
        """Returns the programs among the attributes."""
        return [value for value in self.attributes.values() if isinstance(value, Program)]

    def reads(self) -> set[str]:
        """Returns the names of all values that the call reads, including those in subgraphs."""
        names = set(self.inputs)
        for inner in self.subgraphs():
            names.update(inner.outputs, *(call.reads() for call in inner.calls))
        return names - {""}

    def given(self, operands: tuple[str, ...]) -> set[str]:
        """Returns the names of the values that are given for some of the operator's operands."""
        positions = self.operator.positions(operands, len(self.inputs))
        return {self.inputs[position] for position in positions}

    def keywords(self) -> dict[str, Any]:
        """Returns the keyword arguments that the model fixes, without subgraphs."""
        keywords = {k: v for k, v in self.attributes.items() if not isinstance(v, Program)}
        if "outputs" in self.operator.keywords:
            keywords["outputs"] = len(self.outputs)
        if "opset" in self.operator.keywords:
            keywords["opset"] = self.opset
        return keywords


@dataclass(frozen=True)
class Program:
    """Calls in topological order, with names that are unique in the whole model.

    Attributes:
      name: name of the graph.
      inputs: names of the inputs.
      outputs: names of the outputs.
      calls: the calls; each reads inputs, known values, variables, earlier results and, in a
        subgraph, values of the enclosing graph.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def used(self) -> set[str]:
        """Names of all values that are read, by a call or as an output."""
        return set(self.outputs).union(*(call.reads() for call in self.calls))

    @cached_property
    def finished(self) -> tuple[tuple[str, ...], ...]:
        """For each call, the names of results that no later call reads."""
        finished, wanted = [], set(self.outputs)
        computed = {name for call in self.calls for name in call.outputs if name}
        for call in reversed(self.calls):
            unused = (call.reads() | {name for name in call.outputs if name}) & computed - wanted
            finished.append(tuple(sorted(unused)))
            wanted |= unused
        return tuple(reversed(finished))


def in_two_parts(program: Program) -> tuple[Program, Program | None]:
    """Divides a program into what can be compiled and what makes Python objects of its results.

    Returns:
      The calls that do not read the results of host operators, such as ``ZipMap``; and the others,
      whose inputs are the outputs of the first program. None if there are no others.
    """
    made, rest = set[str](), []
    for call in program.calls:
        if call.operator.host or made & call.reads():
            rest.append(call)
            made.update(call.outputs)
    if not rest:
        return program, None
    first = tuple(call for call in program.calls if call not in rest)
    computed = {*program.inputs, *(name for call in first for name in call.outputs)}
    wanted = dict.fromkeys([*program.outputs, *(n for call in rest for n in sorted(call.reads()))])
    passed = tuple(name for name in wanted if name in computed)
    return (
        replace(program, calls=first, outputs=passed),
        Program(program.name, passed, program.outputs, tuple(rest)),
    )


@dataclass
class Run:
    """The state of one evaluation.

    Attributes:
      training: whether the layers run in training mode.
      rng: a key, or None.
      tracked: names of the running statistics to update.
      statistics: the running statistics that have been updated.
      drawn: number of keys drawn so far.
    """

    training: bool = False
    rng: Any = None
    tracked: frozenset[str] = frozenset()
    statistics: dict[str, Any] = field(default_factory=dict)
    drawn: int = 0

    def key(self) -> Any:
        """Returns a new key, or None if there is no ``rng``."""
        if self.rng is None:
            return None
        self.drawn += 1
        return jax.random.fold_in(self.rng, self.drawn)


ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
ERRORS += (jax.errors.JaxRuntimeError,)  # out of memory


def execute(
    program: Program,
    inputs: Sequence[Any],
    values: Mapping[str, Any],
    run: Run,
    each: Callable[[Call, tuple], tuple] | None = None,
) -> list:
    """Runs a program and returns its outputs.

    Args:
      program: the program, from :func:`jaxatr.onnx.reader.lowering.lower`.
      inputs: one value for each of ``program.inputs``.
      values: known values, variables and, for a subgraph, the values of the enclosing graph.
      run: the state of the evaluation.
      each: function called with every call outside subgraphs and its results; it returns the
        results to continue with.

    Raises:
      ValueError: a call fails; the message names its node.
    """
    values = {**values, **dict(zip(program.inputs, inputs, strict=True))}
    for call, finished in zip(program.calls, program.finished, strict=True):
        names = values if call.subgraphs() else call.inputs
        given, turned = layout.arguments(call.operator, names, values)
        results = layout.results(call.operator, evaluate(call, given, run), turned)
        if each is not None:
            seen = each(call, tuple(map(layout.plain, results)))
            again = [layout.held if isinstance(r, layout.ChannelsLast) else None for r in results]
            results = tuple(hold(v) if hold else v for hold, v in zip(again, seen, strict=True))
        values.update(named(call, results))
        for name in finished:
            del values[name]
    results = [layout.plain(values[name]) for name in program.outputs]
    if not narrowing.narrows():
        return results
    pairs = zip(results, program.outputs, strict=True)
    return [narrowing.checked(value, name) for value, name in pairs]


def evaluate(call: Call, values: Mapping[str, Any], run: Run) -> tuple:
    """Runs one call and returns all results of its function as a tuple.

    Raises:
      ValueError: the function fails; the message names the node.
    """
    operator, keywords = call.operator, call.keywords()
    for name, value in call.attributes.items():
        if isinstance(value, Program):
            keywords[name] = closure(value, values, run)
    if "training" in operator.keywords:
        keywords["training"] = run.training
    if "rng" in operator.keywords:
        keywords["rng"] = run.key()
    try:
        arguments = [values[name] if name else None for name in call.inputs]
        if narrowing.narrows():
            arguments = narrowing.arguments(operator, arguments)
            narrowing.check_labels(operator, keywords)
        if any(map(is_strings, arguments)) and not call.subgraphs():
            arguments = _on_host(arguments)
        # What shapes and types may meet is ONNX's rule, not the caller's setting of jax.
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            results = operator.function(*arguments, **keywords)
    except NodeError:
        raise  # from a subgraph; the message already names the node
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        message = f"a value that depends on an input must be known here; {EAGER}"
        raise NodeError(f"node {call.name!r} ({operator.name}): {message}") from error
    except ERRORS as error:
        raise NodeError(f"node {call.name!r} ({operator.name}): {error}") from error
    results = results if isinstance(results, tuple) else (results,)
    if run.training:
        for operand, output in operator.statistics:
            name = call.inputs[operator.operands.index(operand)]
            if name in run.tracked:
                run.statistics[name] = results[output]
    if len(results) < len(call.outputs):
        raise NodeError(
            f"node {call.name!r} ({operator.name}): got {len(results)} results, "
            f"wanted {len(call.outputs)}"
        )
    return tuple(np.asarray(r) if isinstance(r, np.generic) else r for r in results)


def _on_host(arguments: list[Any]) -> list[Any]:
    """Returns operands as NumPy arrays, the only ones that hold strings."""
    hold_strings(*jax.tree.leaves(arguments))  # raises an error if one of them is traced
    return [np.asarray(v) if isinstance(v, jax.Array) else v for v in arguments]


def named(call: Call, results: tuple) -> dict[str, Any]:
    """Returns the results of a call by name, without unused ones."""
    return {name: result for name, result in zip(call.outputs, results, strict=False) if name}


class NodeError(ValueError):
    """A node is invalid or failed to compute."""


def closure(program: Program, values: Mapping[str, Any], run: Run) -> Callable[..., tuple]:
    """Returns a subgraph as a function of its inputs, closed over the enclosing graph's values."""

    def function(*inputs: Any) -> tuple:
        return tuple(execute(program, inputs, values, run))

    function.__name__ = program.name or "subgraph"
    return function
