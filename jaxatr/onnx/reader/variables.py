"""Divides a model's arrays into parameters, running statistics and constants, and folds calls."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxatr.onnx.ops.dtypes import TRAINABLE
from jaxatr.onnx.ops.shaping import identity
from jaxatr.onnx.ops.values import TooLargeToFold, folding
from jaxatr.onnx.reader import formulas
from jaxatr.onnx.reader.lowering import Lowered
from jaxatr.onnx.reader.narrowing import beyond
from jaxatr.onnx.reader.program import Call, NodeError, Program, Run, evaluate, named

MADE = 1 << 31
"""Maximum bytes of arrays that loading may create beyond the model's initializers."""

FOLDS = 1 << 24
"""Maximum bytes that folding may compute, besides twice the bytes of the known arrays."""

SHAPES = 64
"""Results of up to this many elements are always folded, since they may be shapes."""

SMALL = 1024
"""Arrays of up to this many elements are part of the program if they are not trained."""


@dataclass
class Divided:
    """A program and its arrays.

    Attributes:
      program: the calls that remain after folding.
      known: arrays that are part of the program.
      params: trainable arrays.
      batch_stats: running statistics.
      constants: arrays that are not trained and too large to be part of the program.
    """

    program: Program
    known: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    batch_stats: dict[str, np.ndarray]
    constants: dict[str, np.ndarray]


def divide(
    lowered: Lowered, trainable: Sequence[str] = (), constant: Sequence[str] = ()
) -> Divided:
    """Folds all calls whose operands are known at load time, and divides the remaining arrays.

    A float initializer is a parameter, unless a shape depends on its value, the file marks it as
    not trained, or it is a constant of a formula (:func:`jaxatr.onnx.reader.formulas.constants`). A
    float constant is a parameter if it is a layer's weight. Other arrays are part of the program if
    they are small or have integers beyond 32 bits, else constants among the variables. The output
    of an ``Identity`` is a separate array.

    Args:
      lowered: the model.
      trainable: names, or patterns with ``*`` and ``?``, of initializers to train in any case.
      constant: names or patterns of initializers not to train in any case.

    Raises:
      ValueError: the model creates too many bytes of arrays from shapes and copies, a pattern fits
        no float initializer, or a shape depends on an array to train.
    """
    program, initializers, fixed = _untied(lowered)
    needed = deciding(program)
    floats = {name: value for name, value in initializers.items() if _trainable(value)}
    if not lowered.declared:
        shapes = {name: value.shape for name, value in floats.items()}
        calls = list(calls_of(program))
        fixed |= formulas.constants(calls, program.inputs, program.outputs, shapes, floats)
    trained = formulas.matching("trainable", trainable, floats)
    kept = formulas.matching("constant", constant, floats)
    if both := sorted(trained & kept):
        raise ValueError(f"trainable, constant: both name {both[0]!r}")
    if both := sorted(trained & needed):
        raise ValueError(f"trainable: {both[0]!r} cannot be trained, a shape depends on its value")
    fixed = (fixed | kept) - trained
    known = dict(lowered.constants)
    for name, value in initializers.items():
        if name in needed or name in fixed or not _trainable(value):
            known[name] = value
    program = _Folding(program, known).folded(program)
    weights, statistics = _slots(program)
    weights -= fixed
    arrays = initializers | known
    used = program.used
    params, batch_stats, constants, small = {}, {}, {}, {}
    for name, value in arrays.items():
        if name not in used:
            continue
        if name in statistics and _trainable(value):
            batch_stats[name] = value
        elif name not in known or (name in weights and name not in needed and _trainable(value)):
            params[name] = value
        elif name in needed or value.size <= SMALL or value.dtype == object or beyond(value).size:
            small[name] = value
        else:
            constants[name] = value
    created = sum(v.nbytes for group in (params, batch_stats, constants) for v in group.values())
    created -= sum(value.nbytes for value in lowered.initializers.values())
    if created > MADE:
        raise ValueError(
            f"model: it creates {created} bytes out of shapes and copies, wanted at most {MADE}"
        )
    return Divided(program, small, params, batch_stats, constants)


def _untied(lowered: Lowered) -> tuple[Program, dict[str, np.ndarray], set[str]]:
    """Replaces each ``Identity`` of an initializer by a separate initializer.

    PyTorch's exporter writes equal arrays once and reads the copies through ``Identity``. For
    example, in an untrained network the scales and variances of all layers are one array of ones.

    Returns:
      The program without these nodes, all initializers, and the names of those not trained.
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
    """Yields the calls of a program and its subgraphs in topological order."""
    for call in program.calls:
        for inner in call.subgraphs():
            yield from calls_of(inner)
        yield call


def _trainable(value: np.ndarray) -> bool:
    return value.dtype.name in TRAINABLE


def deciding(program: Program) -> set[str]:
    """Returns the names of values that a shape depends on, directly or through folding operators.

    A result that also depends on the model's inputs cannot be folded, so its operands are left out.
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
        needed |= call.given(operator.static)
        if not operator.shape_only and needed.intersection(call.outputs) - data:
            needed.update(call.inputs)
    return needed - {""}


def _slots(program: Program) -> tuple[set[str], set[str]]:
    """Returns the names of layers' weights and of running statistics."""
    weights, statistics = set(), set()
    for call in calls_of(program):
        weights |= call.given(call.operator.weights)
        statistics |= call.given(call.operator.running)
    return weights, statistics


def uses(program: Program) -> Counter[str]:
    """Counts how often each value is read: by calls, in subgraphs, and as an output."""
    everything = list(calls_of(program))
    counts = Counter(name for call in everything for name in call.inputs)
    programs = [program, *(inner for call in everything for inner in call.subgraphs())]
    counts.update(name for one in programs for name in one.outputs)
    return counts


def own_statistics(program: Program) -> frozenset[str]:
    """Returns the names of running statistics that exactly one call reads, outside subgraphs."""
    count, running = uses(program), set()
    for call in program.calls:
        running |= call.given(call.operator.running)
    return frozenset(name for name in running if count[name] == 1)


class _Folding:
    """Folds a program's constant calls within a memory budget."""

    def __init__(self, program: Program, known: dict[str, np.ndarray]):
        self.readers = uses(program)
        self.known = known
        self.left = FOLDS + 2 * sum(value.nbytes for value in known.values())

    def folded(self, program: Program) -> Program:
        """Returns a program without the calls that were folded; their results become known."""
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
        """Computes a call; returns False if it is too large and is left to run time."""
        try:
            with folding(max(self.left // 8, SHAPES)):
                results = evaluate(call, self.known, Run())
        except NodeError as error:
            if not isinstance(error.__cause__, TooLargeToFold):
                raise
            return False
        computed = {name: np.asarray(result) for name, result in named(call, results).items()}
        self.left = max(0, self.left - sum(_held(value) for value in computed.values()))
        self.known.update(computed)
        for name in call.inputs:
            self.readers[name] -= 1
            if not self.readers[name]:
                self.known.pop(name, None)
        return True


def _held(value: np.ndarray) -> int:
    """Returns the bytes that an array occupies; a broadcast axis counts once."""
    lengths = zip(value.shape, value.strides, strict=True)
    return value.itemsize * math.prod(length for length, stride in lengths if stride)
