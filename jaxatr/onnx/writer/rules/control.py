"""Rules for primitives with bodies: ``scan``, ``while`` and ``cond``.

ONNX lets a body read values of the enclosing graph by name, so constants and weights are not
passed as inputs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct

from jaxatr.jax_internals import jaxpr_as_fun
from jaxatr.onnx.writer.dimensions import is_static
from jaxatr.onnx.writer.graph import Graph, TensorType
from jaxatr.onnx.writer.rules.reduction import reduced_flags
from jaxatr.onnx.writer.translate import (
    Equation,
    Tensor,
    Translator,
    constant,
    is_plain,
    number_like,
    rule,
)
from jaxatr.typing import Array


@rule("scan", unread="ft_in ft_out length num_carry num_consts")  # shapes imply them
def _scan(t: Translator, equation: Equation) -> list[Tensor]:
    params, jaxpr = equation.params, equation.params["jaxpr"]
    consts, carried = _counts(equation, jaxpr)
    backwards = int(params["reverse"])  # read also where there are no steps, as a rule must
    if is_static((params["length"],)) and not params["length"]:  # onnxruntime has no empty Scan
        stacked = equation.out_avals[carried:]
        nothing = [constant(np.zeros((), aval.dtype)) for aval in stacked]
        return [*equation.inputs[consts : consts + carried], *nothing]
    if not all(map(is_plain, equation.in_avals)):  # ONNX has no keys: a constant for each step
        return t.written(partial(_unrolled, jaxpr, consts, carried, params), equation)
    names = [t.read(equation, index) for index in range(consts, len(equation.inputs))]
    inner, inputs = _begun(t, [var.aval for var in jaxpr.jaxpr.invars[consts:]])
    if len(names) == carried:  # without a scanned input, ONNX would not know the number of steps
        names.append(t.graph.constant(np.zeros(params["length"], np.bool_)))
        inner.graph.inputs.append(inner.graph.declare("step", (), np.bool_))
    results = inner.run(jaxpr.jaxpr, jaxpr.consts, [*equation.inputs[:consts], *inputs])
    _finish(inner, results, jaxpr.out_avals)
    given = t.graph.add_many(
        "Scan",
        names,
        _types(equation.out_avals),
        body=inner.graph,
        num_scan_inputs=len(names) - carried,
        scan_input_directions=[backwards] * (len(names) - carried),
        scan_output_directions=[backwards] * (len(results) - carried),
    )
    return [t.tensor(name) for name in given]


def _unrolled(
    jaxpr: Any, consts: int, carried: int, params: Mapping[str, Any], *operands: Array
) -> list[Array]:
    """Computes the steps of a scan one after the other."""
    fixed, carry, scanned = (
        list(operands[begin:end])
        for begin, end in ((0, consts), (consts, consts + carried), (consts + carried, None))
    )
    order, rows = range(params["length"]), []
    for step in reversed(order) if params["reverse"] else order:
        results = jaxpr_as_fun(jaxpr)(*fixed, *carry, *(one[step] for one in scanned))
        carry = results[:carried]
        rows.append(results[carried:])
    rows = rows[::-1] if params["reverse"] else rows
    return [*carry, *(jnp.stack(column) for column in zip(*rows, strict=True))]


def _counts(equation: Equation, jaxpr: Any) -> tuple[int, int]:
    """Returns the number of constants and the number of carried values among the operands.

    Scanned inputs and stacked outputs have one more axis outside the body than inside it. (jax has
    parameters for these numbers, but their names depend on its version.)
    """
    carried = _of_equal_rank(jaxpr.out_avals, equation.out_avals)
    return _of_equal_rank(jaxpr.in_avals, equation.in_avals) - carried, carried


def _of_equal_rank(inside: Sequence[Any], outside: Sequence[Any]) -> int:
    pairs = zip(inside, outside, strict=True)
    return sum(len(one.shape) == len(other.shape) for one, other in pairs)


@rule("while")
def _while(t: Translator, equation: Equation) -> list[Tensor]:
    params = equation.params
    asked, repeated = params["cond_nconsts"], params["body_nconsts"]
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    of_condition, asked_shape = equation.inputs[:asked], condition.out_avals[0].shape
    of_body, first = equation.inputs[asked:][:repeated], equation.inputs[asked + repeated :]
    (begin,) = t.run(condition.jaxpr, condition.consts, [*of_condition, *first])
    start = asked + repeated
    names = [t.read(equation, index) for index in range(start, len(equation.inputs))]
    inner, inputs = _begun(t, body.in_avals[repeated:])
    counter = inner.graph.declare("iteration", (), np.int64)
    inner.graph.inputs[:0] = [counter, inner.graph.declare("again", (), np.bool_)]
    results = inner.run(body.jaxpr, body.consts, [*of_body, *inputs])
    if asked_shape:  # under vmap: examples that have ended keep their values
        (going,) = inner.run(condition.jaxpr, condition.consts, [*of_condition, *inputs])
        pairs = zip(results, inputs, strict=True)
        results = [_where(inner, going, asked_shape, new, old) for new, old in pairs]
    (again,) = inner.run(condition.jaxpr, condition.consts, [*of_condition, *results])
    again = _any(inner, again, asked_shape)
    _finish(inner, [again, *results], [ShapeDtypeStruct((), np.bool_), *body.out_avals])
    begin = t.full(_any(t, begin, asked_shape), ())
    given = t.graph.add_many(
        "Loop", ["", begin, *names], _types(equation.out_avals), body=inner.graph
    )
    return [t.tensor(name) for name in given]


def _where(t: Translator, going: Tensor, shape: tuple, new: Tensor, old: Tensor) -> Tensor:
    """Returns the new values where a flag for each example, over leading axes, is set."""
    mask = t.reshape(t.full(going, shape), (*shape, *[1] * (len(old.shape) - len(shape))))
    return t.pointwise("Where", t.tensor(mask), new, old, dtype=old.dtype)


def _any(t: Translator, flags: Tensor, shape: tuple) -> Tensor:
    if not shape:
        return flags
    every = t.tensor(t.full(flags, shape))
    return reduced_flags(t, "ReduceMax", every, list(range(len(shape))), ())


@rule("cond", unread="branches_platforms")  # the index chooses the branch
def _cond(t: Translator, equation: Equation) -> list[Tensor]:
    branches = equation.params["branches"]
    which, arguments = equation.inputs[0], equation.inputs[1:]
    if which.array is not None:
        chosen = branches[int(np.clip(which.array, 0, len(branches) - 1))]
        return t.run(chosen.jaxpr, chosen.consts, arguments)
    return _branched(t, which, branches, arguments, equation.out_avals)


def _branched(
    t: Translator,
    which: Tensor,
    branches: Sequence[Any],
    arguments: list[Tensor],
    out_avals: list[Any],
) -> list[Tensor]:
    """Returns the results of branch ``which``, clipped to the valid indices."""
    first, *others = branches
    if not others:
        return t.run(first.jaxpr, first.consts, arguments)
    is_first = t.add(
        "LessOrEqual", [t.full(which, ()), t.graph.constant(np.int32(0))], (), np.bool_
    )
    bodies = []
    for rest in ([first], others):
        inner, _ = _begun(t, [])
        next_number = which
        if len(rest) > 1:
            next_number = inner.pointwise("Sub", which, number_like(which, 1))
        _finish(inner, _branched(inner, next_number, rest, arguments, out_avals), out_avals)
        bodies.append(inner.graph)
    given = t.graph.add_many(
        "If", [t.name(is_first)], _types(out_avals), then_branch=bodies[0], else_branch=bodies[1]
    )
    return [t.tensor(name) for name in given]


@rule("platform_index")
def _platform_index(t: Translator, equation: Equation) -> Tensor:
    del t  # the file is for every platform, so take the default branch
    platforms = list(equation.params["platforms"])
    index = platforms.index(None) if None in platforms else 0
    return constant(np.int32(index))


def _begun(t: Translator, avals: Sequence[Any]) -> tuple[Translator, list[Tensor]]:
    """Returns the translator of a new body, and the body's inputs."""
    inner = t.within(Graph(t.graph.root))
    names = [inner.graph.declare("input", aval.shape, aval.dtype) for aval in avals]
    inner.graph.inputs += names
    return inner, [inner.tensor(name) for name in names]


def _finish(inner: Translator, results: Sequence[Tensor], avals: Sequence[Any]) -> None:
    """Adds the outputs of a body, each computed by a node of its own."""
    for value, aval in zip(results, avals, strict=True):
        name = inner.full(value, aval.shape)
        inner.graph.outputs.append(inner.graph.add("Identity", [name], aval.shape))


def _types(avals: Sequence[Any]) -> list[TensorType]:
    return [TensorType(tuple(aval.shape), aval.dtype) for aval in avals]
