"""One step of each cell, given the input's part of its gates."""

from typing import TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array, ArrayLike

State: TypeAlias = tuple[Array, ...]
ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}


def product(problem: RecurrentProblem, a: Array, matrix: ArrayLike) -> Array:
    """Returns ``a @ matrix``, multiplied in the problem's type and summed in its wide type."""
    a, matrix = a.astype(problem.dtype), matrix.astype(problem.dtype)
    flat = a.reshape(-1, a.shape[-1])
    result = jnp.matmul(flat, matrix, preferred_element_type=problem.wide)
    return result.reshape(*a.shape[:-1], matrix.shape[1])


def input_part(problem: RecurrentProblem, weights: Weights, x: Array) -> Array:
    """Computes the input's part of the gates, without the bias, for any leading axes (eq. 12).

    It uses only the input matrix of the weights.
    """
    if weights.w is None:
        return jnp.concatenate([x.astype(problem.wide)] * problem.gates, axis=-1)
    return product(problem, x, weights.w)


def advance(
    problem: RecurrentProblem, weights: Weights, part: Array, state: State
) -> tuple[State, tuple[Array, ...]]:
    """Advances the state by one step.

    Args:
      problem: the layer's problem.
      weights: the layer's weights; only the recurrent matrix and the biases are used.
      part: ``[b, gates * h]``, the input's part of this step, without the bias. The bias is added
        here, where it is free; adding it to all steps at once would copy them.
      state: ``[b, h]``, or two of these for an LSTM.

    Returns:
      The next state, and the values that its derivative needs (see :mod:`.tangents`).
    """
    h, part = state[0], with_bias(part, weights.b)
    if problem.cell == "gru":
        return _gru(problem, weights, part, h)
    return update(problem, part + product(problem, h, weights.r), state)


def update(problem: RecurrentProblem, s: Array, state: State) -> tuple[State, tuple[Array, ...]]:
    """Computes the next state of an LSTM or vanilla cell from the sums of its gates.

    Args:
      problem: the layer's problem.
      s: ``[b, gates * h]``, the sums of the input's part, the recurrent product and the bias.
      state: the state before the step, ``[b, h]`` each.

    Returns:
      The next state, and the values that its derivative needs, as from :func:`advance`.
    """
    if problem.cell != "lstm":
        h = ACTIVATIONS[problem.cell](s)
        return (h,), ()
    # Equations 5 to 10. Sigmoids are computed by tanh, so that one pass covers the three gates and
    # the candidate: for small states the passes take the time, not the arithmetic.
    halves = jnp.full(3 * problem.hidden, 0.5, s.dtype)
    tanhs = jnp.tanh(s * jnp.concatenate([halves, jnp.ones(problem.hidden, s.dtype)]))
    i, f, o, candidate = _split(tanhs)
    c = f * state[1] + i * candidate
    y = jnp.tanh(c)
    return (o * y, c), (tanhs, y)


def gates(problem: RecurrentProblem, saved: tuple[Array, ...]) -> tuple[Array, ...]:
    """Computes the factors of the derivative from the values saved by the steps.

    For an LSTM they are i, f, o, the candidate, and tanh of the cell's state.

    Args:
      problem: the layer's problem.
      saved: the saved values of all steps, ``[t, b, ...]`` each.
    """
    if problem.cell != "lstm":
        return saved
    tanhs, y = saved
    return (*_split(tanhs), y)


def _split(tanhs: Array) -> tuple[Array, ...]:
    """Splits the joint tanh of an LSTM into i, f, o and the candidate."""
    *thirds, candidate = jnp.split(tanhs, 4, axis=-1)
    return (*(0.5 + 0.5 * each for each in thirds), candidate)


def sigmoid(x: Array) -> Array:
    """Computes the logistic function by tanh."""
    return 0.5 + 0.5 * jnp.tanh(0.5 * x)


def _gru(problem, weights, part, h):
    columns = 2 * problem.hidden
    if problem.reset_after:
        recurrent = product(problem, h, weights.r)
        return update_gru(
            part[:, :columns] + recurrent[:, :columns],
            part[:, columns:],
            with_bias(recurrent[:, columns:], weights.rb),
            h,
        )
    both = sigmoid(part[:, :columns] + product(problem, h, weights.r[:, :columns]))
    r, z = jnp.split(both, 2, axis=-1)
    inner = with_bias(product(problem, r * h, weights.r[:, columns:]), weights.rb)
    n = jnp.tanh(part[:, columns:] + inner)
    return ((1 - z) * n + z * h,), ()


def update_gru(joint: Array, own: Array, inner: Array, h: Array) -> tuple[State, tuple[Array, ...]]:
    """Computes the next state of a GRU whose reset gate acts after the recurrent product.

    Args:
      joint: ``[b, 2 h]``, the sums of the reset and update gates.
      own: ``[b, h]``, the input's part of the candidate.
      inner: ``[b, h]``, the state's part of the candidate.
      h: ``[b, h]``, the state before the step.

    Returns:
      The next state, and the values that its derivative needs, as from :func:`advance`.
    """
    both = sigmoid(joint)
    r, z = jnp.split(both, 2, axis=-1)
    n = jnp.tanh(own + r * inner)
    return ((1 - z) * n + z * h,), (both, n, inner)


def with_bias(a: Array, bias: ArrayLike | None) -> Array:
    """Adds the bias, if there is one, in the type of ``a``."""
    return a if bias is None else a + jnp.asarray(bias, a.dtype)
