"""One step of each cell, from the input's part of its gates."""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.problem import Problem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array, ArrayLike

State: TypeAlias = tuple[Array, ...]
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


def product(problem: Problem, a: Array, matrix: ArrayLike) -> Array:
    """Returns ``a @ matrix``, multiplied in the problem's type and summed in its wide one."""
    a, matrix = a.astype(problem.dtype), matrix.astype(problem.dtype)
    flat = a.reshape(-1, a.shape[-1])
    result = jnp.matmul(flat, matrix, preferred_element_type=problem.wide)
    return result.reshape(*a.shape[:-1], matrix.shape[1])


def input_part(problem: Problem, weights: Weights, x: Array) -> Array:
    """Returns what the input adds to the gates, with their bias, for any leading axes (eq. 12)."""
    if weights.w is None:
        part = jnp.concatenate([x.astype(problem.wide)] * problem.gates, axis=-1)
    else:
        part = product(problem, x, weights.w)
    return part if weights.b is None else part + weights.b.astype(problem.wide)


def advance(
    problem: Problem, weights: Weights, part: Array, state: State
) -> tuple[State, tuple[Array, ...]]:
    """Makes one step.

    Args:
      problem: the layer's problem.
      weights: its weights; only the recurrent ones are read.
      part: ``[b, gates * h]``, the input's part of this step.
      state: ``[b, h]``, or two of them for an LSTM.

    Returns:
      The next state, and what its derivative is made of (see :mod:`.tangents`).
    """
    h = state[0]
    if problem.cell == "gru":
        return _gru(problem, weights, part, h)
    return close(problem, part + product(problem, h, weights.r), state)


def close(problem: Problem, s: Array, state: State) -> tuple[State, tuple[Array, ...]]:
    """Makes the step of an LSTM or vanilla cell from its gates' sums, ``[b, gates * h]``."""
    if problem.cell != "lstm":
        h = ACTIVATIONS[problem.cell](s)
        return (h,), ()
    # Equations 5 to 10: one sigmoid over the three gates, which are neighbours.
    sigmoids = jax.nn.sigmoid(s[:, : 3 * problem.hidden])
    candidate = jnp.tanh(s[:, 3 * problem.hidden :])
    i, f, o = jnp.split(sigmoids, 3, axis=-1)
    c = f * state[1] + i * candidate
    y = jnp.tanh(c)
    return (o * y, c), (sigmoids, candidate, y)


def _gru(problem, weights, part, h):
    columns = 2 * problem.hidden
    if problem.reset_after:
        recurrent = product(problem, h, weights.r)
        return close_gru(
            part[:, :columns] + recurrent[:, :columns],
            part[:, columns:],
            with_bias(recurrent[:, columns:], weights.rb),
            h,
        )
    gates = jax.nn.sigmoid(part[:, :columns] + product(problem, h, weights.r[:, :columns]))
    r, z = jnp.split(gates, 2, axis=-1)
    inner = with_bias(product(problem, r * h, weights.r[:, columns:]), weights.rb)
    n = jnp.tanh(part[:, columns:] + inner)
    return ((1 - z) * n + z * h,), ()


def close_gru(joint: Array, own: Array, inner: Array, h: Array) -> tuple[State, tuple[Array, ...]]:
    """Makes the step of a GRU whose reset gate acts after the recurrent product.

    Args:
      joint: ``[b, 2 h]``, the sums of the reset and update gates.
      own: ``[b, h]``, the input's part of the candidate.
      inner: ``[b, h]``, the state's part of the candidate.
      h: ``[b, h]``, the state.
    """
    gates = jax.nn.sigmoid(joint)
    r, z = jnp.split(gates, 2, axis=-1)
    n = jnp.tanh(own + r * inner)
    return ((1 - z) * n + z * h,), (gates, n, inner)


def with_bias(a: Array, bias: Array | None) -> Array:
    """Returns ``a``, plus the bias if there is one."""
    return a if bias is None else a + bias.astype(a.dtype)
