"""Hopper's kernels for all steps of a layer in one launch, forward and backward.

The backward pass recomputes the gates of all steps in one product, which is cheaper than saving
them, and adds MIOpen's merged products for the gradients of the weights (see :mod:`.gemm`).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm
from jaxatr.kernels.ops.recurrent.algorithms.gemm import linear, states_before
from jaxatr.kernels.ops.recurrent.cells import (
    State,
    advance,
    gates,
    input_part,
    product,
    with_bias,
)
from jaxatr.kernels.ops.recurrent.pallas import padded
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.kernels.pallas import kernel
from jaxatr.typing import Array


def applies(problem: RecurrentProblem) -> bool:
    """Returns whether the kernel supports the size and type, and no sequence is masked."""
    if problem.masked or not problem.reset_after or not isinstance(problem.batch, int):
        return False  # the last: a symbolic dimension of jax.export
    return kernel("hopper", "recurrent").applies(problem.cell, problem.hidden, problem.dtype)


def run(
    problem: RecurrentProblem,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
    reverse: bool,
    unroll: int = 1,
    interpret: Any = None,
) -> tuple[Array, State]:
    """Computes a layer (:class:`~.algorithm.Algorithm`) without masks.

    Only reverse mode can differentiate it, and only once. ``interpret`` has the parameters of
    Mosaic's interpreter, for tests.
    """
    del mask, unroll  # there is no loop outside the kernel
    return _layer(problem, reverse, interpret, weights, x, state)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _layer(problem, reverse, interpret, weights, x, state):
    (hs, *_), final = _forward(problem, reverse, interpret, weights, x, state)
    return hs, final


def _forward(problem, reverse, interpret, weights, x, state):
    """Returns the states after each step, ``[t, b, h]`` each, and the final state."""
    module = kernel("hopper", "recurrent")

    @jax.custom_batching.sequential_vmap
    def layer(state: State, r: Array, parts: Array, bias: Array | None) -> State:
        return module.forward(problem.cell, state, r, parts, bias, reverse, interpret)

    bias = None if weights.rb is None else jnp.asarray(weights.rb, problem.wide)
    state, parts = padded((state, _parts(problem, weights, x)), module.ROWS)
    states = layer(state, weights.r.astype(problem.dtype), parts, bias)
    states = tuple(s[:, : problem.batch].astype(problem.wide) for s in states)
    return states, tuple(s[0 if reverse else -1] for s in states)


def _saving(problem, reverse, interpret, weights, x, state):
    states, final = _forward(problem, reverse, interpret, weights, x, state)
    return (states[0], final), (weights, x, state, states)


def _backward(problem, reverse, interpret, residuals, cotangents):
    weights, x, state, states = residuals
    dhs, dfinal = cotangents
    first, last = (-1, 0) if reverse else (0, -1)
    before = states_before(states, state, reverse)
    unbiased = weights._replace(b=None)
    again = jax.vmap(lambda part, *before: advance(problem, unbiased, part, before)[1])
    saved = gates(problem, again(_parts(problem, weights, x), *before))

    def tangents(dweights: Weights, dx: Array) -> tuple[Array, Any]:
        given = problem, weights, x, saved, before, states, dweights, dx
        (tangent, *known), step = linear(*given)
        return tangent, (known, jax.tree_util.Partial(step))

    zeros = jax.tree.map(jnp.zeros_like, (weights, x))
    tangent, to_arguments, (known, step) = jax.vjp(tangents, *zeros, has_aux=True)
    module = kernel("hopper", "recurrent")

    @jax.custom_batching.sequential_vmap
    def layer(r: Array, known: list[Array], dhs: Array, dfinal: Array) -> State:
        by_gate, *others = known
        return module.backward(problem.cell, r, by_gate, others, dhs, dfinal, reverse, interpret)

    # The last h is one of all h; only the cell's state has a cotangent of its own.
    dhs = dhs.at[last].add(dfinal[0])
    dcarried = dfinal[1] if len(dfinal) > 1 else jnp.zeros_like(dfinal[0])
    given = padded((known, dhs, dcarried), module.ROWS)
    dstates = layer(weights.r.astype(problem.dtype), *given)
    dstates = tuple(d[:, : problem.batch] for d in dstates)

    # The transposed steps, with the states' cotangents known, are independent of each other.
    def steps(dstate: State, tangent: Array, recurrent: Array) -> State:
        return step(dstate, (tangent, *known), recurrent)

    _, transposed = jax.vjp(steps, dstates, tangent, jnp.zeros_like(known[0]))
    dstate, tangent, recurrent = transposed(dstates)
    dweights, dx = to_arguments(tangent)
    dh, *others = (d[first] for d in dstate)
    dh = dh + product(problem, recurrent[first], weights.r.T)
    return dweights, dx, (dh, *others)


_layer.defvjp(_saving, _backward)


def _parts(problem: RecurrentProblem, weights: Weights, x: Array) -> Array:
    return with_bias(input_part(problem, weights, x), weights.b)


PART = Algorithm(applies, run, device="hopper", unrolls=False)
