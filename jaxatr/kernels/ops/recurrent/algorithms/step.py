"""One product of the concatenated input and state per step, with jax's own derivative."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm, of_steps
from jaxatr.kernels.ops.recurrent.cells import State, product, update, update_gru, with_bias
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array


def applies(problem: RecurrentProblem) -> bool:
    """Returns whether the input has a matrix and a GRU's reset gate acts after the product."""
    return not problem.skip and problem.reset_after


def joined(problem: RecurrentProblem, weights: Weights) -> Callable:
    """Returns the step ``(state, x) -> (state, saved)`` with one product of ``[x, h]``.

    A GRU's candidate needs the input's and the state's parts separately, so its matrix has a fourth
    block of columns, with zeros where an input does not contribute.
    """
    hidden = problem.hidden
    w: Any
    w, r, bias = weights.w, weights.r, weights.b
    if problem.cell == "gru":
        w = jnp.concatenate([w, jnp.zeros_like(w[:, :hidden])], axis=1)
        none = jnp.zeros_like(r[:, :hidden])
        r = jnp.concatenate([r[:, : 2 * hidden], none, r[:, 2 * hidden :]], axis=1)
        if bias is not None or weights.rb is not None:
            bias = jnp.zeros(3 * hidden, problem.wide) if bias is None else bias
            rb = jnp.zeros(hidden, problem.wide) if weights.rb is None else weights.rb
            bias = jnp.concatenate([bias.astype(problem.wide), rb.astype(problem.wide)])
    matrix = jnp.concatenate([w.astype(problem.dtype), r.astype(problem.dtype)])

    def step(state: State, x: Array) -> tuple[State, tuple[Array, ...]]:
        both = jnp.concatenate([x, state[0].astype(problem.dtype)], axis=-1)
        s = with_bias(product(problem, both, matrix), bias)
        if problem.cell != "gru":
            return update(problem, s, state)
        joint, own, inner = jnp.split(s, (2 * hidden, 3 * hidden), axis=-1)
        return update_gru(joint, own, inner, state[0])

    return step


PART = Algorithm(applies, of_steps(lambda problem, weights, x: (joined(problem, weights), x)))
