"""Which of a model's arrays are trained, which are known while jit traces, and what folds."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from jaxatr.onnx.ops.dtypes import TRAINABLE
from jaxatr.onnx.ops.shaping import identity
from jaxatr.onnx.ops.values import TooLargeToFold, folding
from jaxatr.onnx.reader.lowering import Lowered
from jaxatr.onnx.reader.program import Call, NodeError, Program, Run, evaluate, named

MADE = 1 << 31
"""Bytes of arrays that a model may make out of shapes, and of copies of what it has."""

FOLDS = 1 << 24
"""Bytes that NumPy may compute while a model is loaded, besides twice those in the file."""

SHAPES = 64
"""Elements up to which a result is computed always: that is a shape."""

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
    the program, or, where it is large, a constant among the variables. What passes an ``Identity``
    is an array of its own.
    """
    program, initializers, fixed = _untied(lowered)
    needed = deciding(program)
    known = dict(lowered.constants)
    for name, value in initializers.items():
        if name in needed or name in fixed or not _trainable(value):
            known[name] = value
    program = _Folding(program, known).folded(program)
    weights, statistics = _slots(program)
    weights -= fixed
    arrays = initializers | known
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
        raise ValueError(
            f"model: it makes {made} bytes out of shapes and copies, wanted at most {MADE}"
        )
    return Divided(program, small, params, batch_stats, constants)


def _untied(lowered: Lowered) -> tuple[Program, dict[str, np.ndarray], set[str]]:
    """Returns a model in which each ``Identity`` of an initializer is an initializer too.

    PyTorch's exporter writes equal arrays once, and reads them by ``Identity`` elsewhere: in a
    network that begins to be trained, a scale of ones is also the variance of its layer, and of
    others.

    Returns:
      The program without these nodes, all initializers, and the names of those not to be trained.
    """
    initializers, fixed, calls = dict(lowered.initializers), set(lowered.fixed), []
    for call in lowered.program.calls:
        source = call.inputs[0] if call.operator.function is identity else ""
        if source not in initializers or not call.outputs:
            calls.append(call)
            continue
        initializers[call.outputs[0]] = initializers[source]
        if source in fixed:
            fixed.add(call.outputs[0])
    return replace(lowered.program, calls=tuple(calls)), initializers, fixed


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
        decisive = operator.static + operator.settings
        for position in operator.positions(decisive, len(call.inputs)):
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


def uses(program: Program) -> Counter[str]:
    """Returns how often each value is read, by calls, as output, and in subgraphs."""
    everything = list(calls_of(program))
    found = Counter(name for call in everything for name in call.inputs)
    found.update(program.outputs)
    found.update(
        name for call in everything for inner in call.subgraphs() for name in inner.outputs
    )
    return found


def own_statistics(program: Program) -> frozenset[str]:
    """Returns the names of running statistics that one call alone reads, outside of subgraphs."""
    count, found = uses(program), set()
    for call in program.calls:
        operator = call.operator
        names = tuple(name for name, _ in operator.statistics)
        found |= {call.inputs[i] for i in operator.positions(names, len(call.inputs))}
    return frozenset(name for name in found if count[name] == 1)


def _used(program: Program) -> set[str]:
    return set(program.outputs).union(*(call.reads() for call in program.calls))


class _Folding:
    """Computes what is known of a program, as far as memory is meant for it."""

    def __init__(self, program: Program, known: dict[str, np.ndarray]):
        calls = list(calls_of(program))
        programs = [program, *(inner for call in calls for inner in call.subgraphs())]
        self.readers = Counter(name for call in calls for name in call.inputs)
        self.readers.update(name for inner in programs for name in inner.outputs)
        self.known = known
        self.left = FOLDS + 2 * sum(value.nbytes for value in known.values())

    def folded(self, program: Program) -> Program:
        """Returns a program without calls that fold; results that are still read become known."""
        calls = []
        for call in program.calls:
            inner = {
                key: self.folded(value) if isinstance(value, Program) else value
                for key, value in call.attributes.items()
            }
            call = replace(call, attributes=inner)
            ready = all(not name or name in self.known for name in call.inputs)
            if not (call.operator.folds and ready and not call.subgraphs() and self.fold(call)):
                calls.append(call)
        return replace(program, calls=tuple(calls))

    def fold(self, call: Call) -> bool:
        """Returns whether a call could be computed now; else it is when the model runs."""
        try:
            with folding(max(self.left // 8, SHAPES)):
                results = evaluate(call, self.known, Run())
        except NodeError as error:
            if not isinstance(error.__cause__, TooLargeToFold):
                raise
            return False
        made = {name: np.asarray(result) for name, result in named(call, results).items()}
        self.left = max(0, self.left - sum(_held(value) for value in made.values()))
        self.known.update(made)
        for name in call.inputs:
            self.readers[name] -= 1
            if not self.readers[name]:
                self.known.pop(name, None)
        return True


def _held(value: np.ndarray) -> int:
    """Returns the bytes of an array, each once where it is spread over an axis."""
    lengths = zip(value.shape, value.strides, strict=True)
    return value.itemsize * math.prod(length for length, stride in lengths if stride)
