"""Which of a model's arrays are trained, which are known while jit traces, and what folds."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jaxatr.onnx.lowering import Lowered
from jaxatr.onnx.ops.dtypes import TRAINABLE
from jaxatr.onnx.ops.values import TooLargeToFold, folding
from jaxatr.onnx.program import Call, NodeError, Program, Run, evaluate, named

MADE = 1 << 31
"""Bytes of arrays that a model may make out of shapes alone."""

SMALL = 1024
"""Elements up to which an array that is not trained is part of the program."""


@dataclass
class Divided:
    """A program and its arrays.

    Attributes:
      program: what is left to compute.
      known: part of the program.
      params: trained.
      batch_stats: running statistics.
      constants: too large to be part of the program.
    """

    program: Program
    known: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    batch_stats: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]


def divide(lowered: Lowered) -> Divided:
    """Returns the model with everything folded that is known at load time.

    A float initializer is a parameter, unless an operator needs its value to know a shape or the
    file says otherwise. So is a float constant that is a layer's weight. What is neither is part of
    the program, or, where it is large, a constant among the variables.
    """
    program = lowered.program
    needed = deciding(program)
    known = dict(lowered.constants)
    for name, value in lowered.initializers.items():
        if name in needed or name in lowered.fixed or not _trainable(value):
            known[name] = value
    program = _folded(program, known)
    weights, statistics = _slots(program)
    weights -= lowered.fixed
    arrays = lowered.initializers | known
    used = _used(program)
    params, batch_stats, constants, small = {}, {}, {}, {}
    for name, value in arrays.items():
        if name not in used:
            continue
        if name in statistics and _trainable(value):
            batch_stats[name] = value
        elif name not in known or (name in weights and name not in needed and _trainable(value)):
            params[name] = value
        elif name in needed or value.size <= SMALL or value.dtype == object:
            small[name] = value
        else:
            constants[name] = value
    made = sum(v.nbytes for group in (params, batch_stats, constants) for v in group.values())
    made -= sum(value.nbytes for value in lowered.initializers.values())
    if made > MADE:
        raise ValueError(f"model: it makes {made} bytes out of shapes, wanted at most {MADE}")
    return Divided(program, small, params, batch_stats, constants)


def calls_of(program: Program) -> Iterator[Call]:
    """Yields the calls of a program and of its subgraphs, in an order of computation."""
    for call in program.calls:
        for inner in call.subgraphs():
            yield from calls_of(inner)
        yield call


def _trainable(value: np.ndarray) -> bool:
    return value.dtype.name in TRAINABLE


def deciding(program: Program) -> set[str]:
    """Returns the names whose values decide a shape, by way of operators that fold.

    Where an operand depends on data too, nothing is gained by knowing the rest of it.
    """
    calls, data = list(calls_of(program)), set(program.inputs)
    data.update(name for call in calls for inner in call.subgraphs() for name in inner.inputs)
    for call in calls:
        shape_only, folds = call.operator.shape_only, call.operator.folds
        if not shape_only and not (folds and data.isdisjoint(call.inputs)):
            data.update(call.outputs)
    needed: set[str] = set()
    for call in reversed(calls):
        operator = call.operator
        for position in operator.positions(operator.static, len(call.inputs)):
            needed.add(call.inputs[position])
        if not operator.shape_only and needed.intersection(call.outputs) - data:
            needed.update(call.inputs)
    return needed - {""}


def _slots(program: Program) -> tuple[set[str], set[str]]:
    """Returns the names that are weights of layers, and those that are running statistics."""
    weights, statistics = set(), set()
    for call in calls_of(program):
        operator = call.operator
        names = tuple(name for name, _ in operator.statistics)
        weights |= {call.inputs[i] for i in operator.positions(operator.weights, len(call.inputs))}
        statistics |= {call.inputs[i] for i in operator.positions(names, len(call.inputs))}
    return weights, statistics


def _used(program: Program) -> set[str]:
    return set(program.outputs).union(*(call.reads() for call in program.calls))


def _folded(program: Program, known: dict[str, np.ndarray]) -> Program:
    """Returns what is left of a program; the values that could be computed are added to known."""
    calls = []
    for call in program.calls:
        inner = {
            key: _folded(value, known) if isinstance(value, Program) else value
            for key, value in call.attributes.items()
        }
        call = replace(call, attributes=inner)
        ready = all(not name or name in known for name in call.inputs)
        if not (call.operator.folds and ready and not call.subgraphs()):
            calls.append(call)
            continue
        try:
            with folding():
                results = evaluate(call, known, Run())
        except NodeError as error:
            if not isinstance(error.__cause__, TooLargeToFold):
                raise
            calls.append(call)  # computed when the model runs
            continue
        known.update((name, np.asarray(r)) for name, r in named(call, results).items())
    return replace(program, calls=tuple(calls))
