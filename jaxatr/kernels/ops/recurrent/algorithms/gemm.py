"""MIOpen's merged matrix products: one for all inputs, and one for each weight gradient.

Forward: eq. 11 and 12. Backward: one recurrent product per step (eq. 15), then one product each for
the gradients of the inputs (eq. 17), the input matrix (eq. 19) and the recurrent matrix (eq. 21).
jax's own derivative of the loop would instead accumulate the recurrent matrix's gradient at every
step.

The derivative is a linear loop (``custom_jvp``), which jax transposes. A ``custom_vjp`` would
compute the same but lose forward mode.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm
from jaxatr.kernels.ops.recurrent.cells import State, advance, gates, input_part, with_bias
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.tangents import linearised
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array, ArrayLike

Forward: TypeAlias = Callable[..., tuple[State, State, tuple[Array, ...]]]


def applies(problem: RecurrentProblem) -> bool:
    """Returns whether a GRU's reset gate acts after the product, as the derivative assumes."""
    return problem.reset_after


def hoisted(problem, reverse, unroll, weights, x, state, mask, saves=True):
    """Runs the forward pass with one product for all inputs before the loop."""
    del saves  # XLA removes unused results
    final, (states, saved) = loop(
        lambda state, part: advance(problem, weights, part, state),
        state,
        input_part(problem, weights, x),
        mask,
        reverse,
        unroll,
    )
    return states, final, gates(problem, saved)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def recurrence(
    forward: Forward,
    problem: RecurrentProblem,
    reverse: bool,
    unroll: int,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
) -> tuple[Array, State]:
    """Runs ``forward``, with the derivative described above.

    Args:
      forward: ``(problem, reverse, unroll, weights, x, state, mask, saves=True)`` returns the
        states after each step, the final state, and the values that :mod:`.tangents` needs, unless
        ``saves`` is False.
      problem: the layer's problem.
      reverse: whether to run from the last step to the first.
      unroll: steps per iteration of the loops.
      weights: the layer's weights.
      x: ``[t, b, d]``.
      state: the initial state.
      mask: ``[t, b, 1]`` or None.

    Returns:
      The states ``h`` after each step, ``[t, b, h]``, and the final state.
    """
    states, final, _ = forward(problem, reverse, unroll, weights, x, state, mask, saves=False)
    return states[0], final


@recurrence.defjvp
def _derivative(forward, problem, reverse, unroll, primals, tangents):
    weights, x, state, mask = primals
    dweights, dx, dstate, _ = tangents
    states, final, saved = forward(problem, reverse, unroll, weights, x, state, mask)
    before = states_before(states, state, reverse)
    inputs, step = linear(problem, weights, x, saved, before, states, dweights, dx)
    if mask is not None:  # broadcast here, or jax would add a second loop for it
        mask = jnp.broadcast_to(mask, states[0].shape)
    # Transposed once, before the loop, so that jax's transpose of the loop multiplies by the matrix
    # as it is in memory. Transposing it inside makes every step on CPU take half again as long.
    transposed = weights.r.astype(problem.dtype).T

    def tangent(dstate: State, known: Any) -> tuple[State, None]:
        dh = dstate[0].astype(problem.dtype)
        recurrent = jax.lax.dot_general(dh, transposed, (((1,), (1,)), ((), ())))
        return step(dstate, known, recurrent.astype(problem.wide)), None

    dfinal, ((dhs, *_), _) = loop(tangent, dstate, inputs, mask, reverse, unroll)
    return (states[0], final), (dhs, dfinal)


def merged(forward: Forward) -> Callable[..., tuple[Array, State]]:
    """Makes an algorithm's ``run`` from its forward pass (:func:`recurrence`)."""

    def run(problem, weights, x, state, mask, reverse, unroll=1):
        return recurrence(forward, problem, reverse, unroll, weights, x, state, mask)

    return run


def linear(
    problem: RecurrentProblem,
    weights: Weights,
    x: Array,
    saved: tuple[Array, ...],
    before: State,
    after: State,
    dweights: Weights,
    dx: Array,
) -> tuple[Any, Callable[[State, Any, Array], State]]:
    """Makes the linear loop of the tangents.

    Args:
      problem: the layer's problem.
      weights: the layer's weights.
      x: ``[t, b, d]``.
      saved: the result of :func:`~.cells.gates` for all steps.
      before: the states before each step, ``[t, b, h]`` each.
      after: the states after each step, ``[t, b, h]`` each.
      dweights: the tangents of the weights.
      dx: the tangent of the input.

    Returns:
      The loop's inputs, of which only the first depends on the tangents, and its step; see
      :func:`~.tangents.linearised`.
    """
    from_input = _input_tangent(problem, weights, dweights, x, dx)
    from_weights = _by_weights(problem, before[0], dweights.r)
    if dweights.rb is not None:
        zeros = jnp.zeros(2 * problem.hidden, dweights.rb.dtype)
        from_weights = with_bias(from_weights, jnp.concatenate([zeros, dweights.rb]))
    return linearised(problem, saved, before, after, from_input, from_weights)


def _product(problem: RecurrentProblem, a: Array, matrix: ArrayLike) -> Array:
    """Returns ``a @ matrix`` rounded to the problem's type.

    jax's transpose of it is rounded too, so that the products of the backward pass are in half
    precision if the forward ones are, and not in float32 because of their sums.
    """
    flat = a.astype(problem.dtype).reshape(-1, a.shape[-1])
    result = (flat @ matrix.astype(problem.dtype)).astype(problem.wide)
    return result.reshape(*a.shape[:-1], matrix.shape[1])


def _by_weights(problem: RecurrentProblem, a: Array, dmatrix: ArrayLike) -> Array:
    """Returns ``a @ dmatrix`` like :func:`_product`, in a form whose transpose is fast on CPU.

    The transpose, the gradient of the matrix, sums over the rows of ``a``. XLA:CPU has a faster
    product for that if ``a`` is transposed in memory.
    """
    if jax.default_backend() != "cpu":
        return _product(problem, a, dmatrix)
    transposed = a.astype(problem.dtype).reshape(-1, a.shape[-1]).T
    transposed = jax.lax.optimization_barrier(transposed)  # or the compiler undoes it
    sums = (((0,), (0,)), ((), ()))
    result = jax.lax.dot_general(transposed, dmatrix.astype(problem.dtype), sums)
    return result.astype(problem.wide).reshape(*a.shape[:-1], dmatrix.shape[1])


def _input_tangent(problem, weights, dweights, x, dx):
    if weights.w is None:
        tangent = jnp.concatenate([dx.astype(problem.wide)] * problem.gates, axis=-1)
    else:
        tangent = _product(problem, dx, weights.w) + _by_weights(problem, x, dweights.w)
    return with_bias(tangent, dweights.b)


def states_before(after: State, first: State, reverse: bool) -> State:
    """Returns the states before each step, from those after each step and the initial state."""

    def one(after: Array, first: Array) -> Array:
        if reverse:
            return jnp.concatenate([after[1:], first[None]])
        return jnp.concatenate([first[None], after[:-1]])

    return tuple(map(one, after, first))


PART = Algorithm(applies, merged(hoisted))
