"""Control-flow operators; a subgraph is a function of its inputs that returns a tuple."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.onnx.ops.dtypes import is_text
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import EAGER, Known, Value, axis_of, known, library

Body = Callable[..., tuple]

UNROLLED = 1024
"""Maximum number of iterations of an unrolled loop."""

_SCAN_OUTPUTS = (
    "under jit the number of iterations of a loop with scan outputs must be known, and at most "
    f"{UNROLLED}; {EAGER}"
)


def _is_traced(value: Any) -> bool:
    return isinstance(value, Tracer)


def _single(results: tuple) -> Any:
    return results[0] if len(results) == 1 else results


@register("If", static=("cond",))
def if_(cond: Any, *, then_branch: Body, else_branch: Body) -> Any:
    """Returns the results of one of two branches (ONNX If-25).

    If the condition is known, only the chosen branch is computed. If it is traced, this becomes
    ``jax.lax.cond``, and both branches must return the same shapes and types.

    Args:
      cond: the condition, a single boolean.
      then_branch: function without arguments, called if the condition is true.
      else_branch: function without arguments, called if the condition is false.
    """
    if not _is_traced(cond):
        return _single((then_branch if bool(known("cond", cond).all()) else else_branch)())
    found: list[str] = []

    def traced(branch: Body) -> Body:
        def run() -> tuple:
            results = branch()
            found.append(_described(results))
            return _arrays(results)

        return run

    try:
        branches = traced(then_branch), traced(else_branch)
        return _single(jax.lax.cond(jnp.reshape(cond, ()), *branches))
    except TypeError as error:
        raise ValueError(
            "under jit both branches must return the same shapes and types, and no strings; got "
            f"{' and '.join(found)}; {EAGER}"
        ) from error


def _described(values: Any) -> str:
    """Formats the types and shapes of values."""
    kinds = []
    for value in jax.tree.leaves(list(values)):
        dtype = np.asarray(value).dtype if not hasattr(value, "dtype") else value.dtype
        kind = "strings" if is_text(dtype) else dtype.name
        kinds.append(f"{kind}[{','.join(map(str, np.shape(value)))}]")
    return f"({', '.join(kinds)})"


def _arrays(values: Any) -> tuple:
    return tuple(jax.tree.map(jnp.asarray, list(values)))


@register("Loop", static=("trips", "cond"))
def loop(
    trips: Known | None = None,
    cond: Known | None = None,
    *carried: Any,
    body: Body,
    condition_shape: tuple[int, ...] = (),
    number_shape: tuple[int, ...] = (),
    outputs: int,
) -> Any:
    """Returns the final carried values of a loop and its stacked scan outputs (ONNX Loop-25).

    If the number of iterations is known and the condition does not depend on traced values, the
    loop is unrolled, up to ``UNROLLED`` iterations. Otherwise it becomes ``jax.lax.while_loop``,
    which has no scan outputs and needs carried values of fixed shapes.

    Args:
      trips: maximum number of iterations; None for no limit.
      cond: whether the first iteration runs; None for true.
      *carried: initial carried values.
      body: function from (iteration number, condition, carried values) to (condition, carried
        values, scan outputs).
      condition_shape: shape in which ``body`` takes the condition: (), or (1,) in old files.
      number_shape: shape in which ``body`` takes the iteration number.
      outputs: number of outputs.
    """

    def shaped(count, going, *values):
        lib = library(count, going)
        wide = np.int64 if lib is np else jax.dtypes.canonicalize_dtype(np.int64)
        number = lib.reshape(lib.asarray(count, wide), number_shape)
        return body(number, lib.reshape(going, condition_shape), *values)

    if _is_traced(trips) or _is_traced(cond):
        return _single(_while(trips, cond, carried, shaped, outputs))
    limit = None if trips is None else int(known("trips", trips).reshape(()))
    going: Any = np.array(True) if cond is None else known("cond", cond)
    count, rows, values = 0, [], list(carried)
    while (limit is None or count < limit) and bool(known("cond", going).all()):
        results = shaped(count, going, *values)
        going, values = results[0], list(results[1 : 1 + len(carried)])
        unrolled = count + 1 == UNROLLED and (limit is None or limit > UNROLLED)
        traced = any(map(_is_traced, jax.tree.leaves(values)))
        if _is_traced(going) or (unrolled and traced and bool(known("cond", going).all())):
            if any(rows) or len(results) > 1 + len(carried):
                raise ValueError(_SCAN_OUTPUTS)
            rest = None if limit is None else np.array(limit)
            return _single(_while(rest, going, tuple(values), shaped, outputs, count + 1))
        rows.append(results[1 + len(carried) :])
        count += 1
    if not rows and outputs > len(carried):
        # Without iterations the scan outputs are empty; one call gives their types and shapes.
        unused = shaped(0, going, *values)[1 + len(carried) :]
        return _single((*values, *(column[:0] for column in _stacked([unused]))))
    return _single((*values, *_stacked(rows)))


def _stacked(rows: list) -> list:
    """Stacks the scan outputs along a new first axis."""

    def stack(column):
        return (np if all(isinstance(v, np.ndarray) for v in column) else jnp).stack(column)

    return [stack(column) for column in zip(*rows, strict=True)]


def _while(trips, cond, carried, body, outputs: int, first: int = 0) -> tuple:
    if outputs > len(carried):
        raise ValueError(_SCAN_OUTPUTS)
    if trips is not None and not _is_traced(trips):
        # A count has 32 bits where jax narrows; a limit beyond that is none.
        trips = np.minimum(trips, np.iinfo(jax.dtypes.canonicalize_dtype(np.int64)).max)
    started = jnp.asarray(True if cond is None else cond).reshape(())

    def going(state):
        count, more, _ = state
        return more if trips is None else more & (count < jnp.reshape(trips, ()))

    found = [_described(carried)]

    def step(state):
        count, more, values = state
        more, *values = body(count, more, *values)
        found.append(_described(values))
        return count + 1, jnp.asarray(more).reshape(()), _arrays(values)

    wide = jax.dtypes.canonicalize_dtype(np.int64)
    if any(is_text(value.dtype) for value in jax.tree.leaves(carried) if hasattr(value, "dtype")):
        raise ValueError(f"a loop that carries strings cannot be compiled; {EAGER}")
    state = (jnp.asarray(first, wide), started, _arrays(carried))
    try:
        return jax.lax.while_loop(going, step, state)[2]
    except TypeError as error:
        raise ValueError(
            "under jit the values that a loop carries must keep their shapes and types, and be no "
            f"strings; got {found[0]} and after an iteration {found[-1]}; {EAGER}"
        ) from error


@register("Gradient", domain="ai.onnx.preview.training")
def gradient(*values: Value, body: Body, count: int) -> Any:
    """Returns the gradients with respect to the first ``count`` arguments (preview Gradient-1).

    Args:
      *values: arguments of the function.
      body: function from the arguments to a tuple of one tensor, whose elements are summed.
      count: number of arguments to differentiate with respect to.
    """
    gradients = jax.grad(lambda *v: jnp.sum(body(*v)[0]), tuple(range(count)))(*_arrays(values))
    return _single(gradients)


@register("Scan", since=9)
def scan(
    *values: Any,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
    outputs: int,
) -> Any:
    """Scans a function over slices; returns final states and stacked outputs (ONNX Scan-25).

    Args:
      *values: the initial states, then ``num_scan_inputs`` tensors to slice.
      body: function from (states, slices) to (states, outputs).
      num_scan_inputs: number of tensors to slice.
      scan_input_axes: axis along which to slice each tensor; the first by default.
      scan_input_directions: 1 for each tensor to read in reverse, else 0.
      scan_output_axes: axis along which to stack each output; the first by default.
      scan_output_directions: 1 for each output to stack in reverse, else 0.
      outputs: number of outputs.
    """
    if not 0 < num_scan_inputs <= len(values):
        raise ValueError(f"num_scan_inputs: got {num_scan_inputs}, wanted 1 to {len(values)}")
    states = _arrays(values[: len(values) - num_scan_inputs])
    axes = scan_input_axes or (0,) * num_scan_inputs
    turned = scan_input_directions or (0,) * num_scan_inputs
    slices = []
    for value, axis, turn in zip(values[len(states) :], axes, turned, strict=True):
        moved = jnp.moveaxis(value, axis_of(axis, np.ndim(value)), 0)
        slices.append(jnp.flip(moved, 0) if turn else moved)

    def step(carry, xs):
        results = _arrays(body(*carry, *xs))
        return results[: len(states)], results[len(states) :]

    states, stacked = jax.lax.scan(step, states, tuple(slices))
    axes = scan_output_axes or (0,) * len(stacked)
    turned = scan_output_directions or (0,) * len(stacked)
    results = []
    for value, axis, turn in zip(stacked, axes, turned, strict=True):
        value = jnp.flip(value, 0) if turn else value
        results.append(jnp.moveaxis(value, 0, axis_of(axis, value.ndim)))
    return _single((*states, *results))


@register("Scan", since=8)
def scan_batch(
    sequence_lens: Value | None = None,
    *values: Any,
    body: Body,
    num_scan_inputs: int,
    directions: tuple[int, ...] | None = None,
    outputs: int,
) -> Any:
    """Applies :func:`scan` to each example of a batch (ONNX Scan-8).

    Args:
      sequence_lens: must be None; all examples have full length.
      *values: the initial states, then ``num_scan_inputs`` tensors. The first axis of each is the
        batch; tensors are sliced along the second.
      body: function from (states, slices) to (states, outputs).
      num_scan_inputs: number of tensors to slice.
      directions: 1 for each tensor to read in reverse, else 0.
      outputs: number of outputs.
    """
    if sequence_lens is not None:
        raise ValueError("sequence_lens: got lengths, wanted None: only full length is supported")

    def one(*example):
        found = scan(
            *example,
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
            outputs=outputs,
        )
        return found if isinstance(found, tuple) else (found,)

    return _single(jax.vmap(one)(*(jnp.asarray(value) for value in values)))
