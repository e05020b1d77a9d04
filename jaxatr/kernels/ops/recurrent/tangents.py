"""The derivative of each cell's step, a linear map whose coefficients do not depend on the loop.

The coefficients of all steps are computed at once, before the loop, which is left with the
recurrent product and a few multiplications. jax transposes this loop into the paper's eq. 15.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.typing import Array


def linearised(
    problem: RecurrentProblem,
    saved: tuple[Array, ...],
    before: State,
    after: State,
    from_input: Array,
    from_weights: Array,
) -> tuple[Any, Callable[[State, Any, Array], State]]:
    """Makes the linear loop's step function and its inputs.

    Args:
      problem: the layer's problem; a GRU must be ``reset_after``.
      saved: the result of :func:`~.cells.gates`, ``[t, b, ...]`` each.
      before: the states before each step, ``[t, b, h]`` each.
      after: the states after each step, ``[t, b, h]`` each.
      from_input: ``[t, b, gates * h]``, the tangent of the input's part.
      from_weights: ``[t, b, gates * h]``, the tangent of the recurrent part with respect to its
        weights alone.

    Returns:
      ``inputs`` and ``step``, where ``step(tangents of the states, inputs of this step, tangent of
      h times the recurrent matrix)`` returns the tangents of the next states.
    """
    if problem.cell == "lstm":
        return _lstm(saved, before, from_input + from_weights)
    if problem.cell == "gru":
        return _gru(saved, before, from_input, from_weights)
    return _vanilla(problem, after, from_input + from_weights)


def _vanilla(problem, after, ds):
    (h,) = after
    slope = 1 - h**2 if problem.cell == "tanh" else (h > 0).astype(h.dtype)
    return (ds, slope), lambda _, known, recurrent: (known[1] * (known[0] + recurrent),)


def _lstm(saved, before, ds):
    i, f, o, g, y = saved
    to_gates = jnp.concatenate(
        [g * i * (1 - i), before[1] * f * (1 - f), y * o * (1 - o), i * (1 - g**2)], axis=-1
    )
    to_h = o * (1 - y**2)

    def step(state: State, known: Any, recurrent: Array) -> State:
        ds, to_gates, f, to_h = known
        di, df, do, dg = jnp.split(to_gates * (ds + recurrent), 4, axis=-1)
        dc = f * state[1] + di + df + dg
        return do + to_h * dc, dc

    return (ds, to_gates, f, to_h), step


def _gru(saved, before, from_input, from_weights):
    gates, n, inner = saved
    r, z = jnp.split(gates, 2, axis=-1)
    by_candidate = (1 - z) * (1 - n**2)
    by_reset = by_candidate * inner * r * (1 - r)
    by_update = (before[0] - n) * z * (1 - z)
    of_input = jnp.concatenate([by_reset, by_update, by_candidate], axis=-1)
    of_state = jnp.concatenate([by_reset, by_update, by_candidate * r], axis=-1)
    known = _blocks(of_input * from_input + of_state * from_weights)

    def step(state: State, inputs: Any, recurrent: Array) -> State:
        known, of_state, z = inputs
        return (known + _blocks(of_state * recurrent) + z * state[0],)

    return (known, of_state, z), step


def _blocks(a: Array) -> Array:
    """Returns the sum of a GRU's three blocks of columns."""
    first, second, third = jnp.split(a, 3, axis=-1)
    return first + second + third
