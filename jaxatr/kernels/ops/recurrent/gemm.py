"""The paper's single products: all inputs at once, and all weight gradients at once.

Forward: eq. 11 and 12, or the product of ``[x, h]`` per step, which XLA:CPU prefers. Backward: one
recurrent product per step (eq. 15), then one product each for the gradients of the inputs (eq. 17),
of the input's matrix (eq. 19) and of the recurrent matrix (eq. 21). jax's own derivative of the
loop would instead add to the recurrent matrix's gradient at every step.

The derivative is given as a linear loop (``custom_jvp``), which jax transposes: a ``custom_vjp``
would compute the same, but forward mode would be lost.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.cells import State, advance, gates, input_part, with_bias
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import Problem
from jaxatr.kernels.ops.recurrent.step import joined
from jaxatr.kernels.ops.recurrent.tangents import linearised
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array

Forward: TypeAlias = Callable[..., tuple[State, State, tuple[Array, ...]]]


def applies(problem: Problem) -> bool:
    """Says whether the reset gate (if any) acts after the product, which the derivative needs."""
    return problem.reset_after


def run(
    problem: Problem,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
    reverse: bool,
    unroll: int = 1,
) -> tuple[Array, State]:
    """Returns the states ``h`` after each step, ``[t, b, h]``, and the final state."""
    return recurrence(hoisted, problem, reverse, unroll, weights, x, state, mask)


def run_joined(
    problem: Problem,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
    reverse: bool,
    unroll: int = 1,
) -> tuple[Array, State]:
    """The same with one product of ``[x, h]`` per step forward."""
    return recurrence(one_product, problem, reverse, unroll, weights, x, state, mask)


def hoisted(problem, reverse, unroll, weights, x, state, mask, saves=True):
    """The forward pass with the inputs' products before the loop."""
    del saves  # XLA drops what nothing reads
    final, (states, saved) = loop(
        lambda state, part: advance(problem, weights, part, state),
        state,
        input_part(problem, weights, x),
        mask,
        reverse,
        unroll,
    )
    return states, final, gates(problem, saved)


def one_product(problem, reverse, unroll, weights, x, state, mask, saves=True):
    """The forward pass with one product per step."""
    del saves  # XLA drops what nothing reads
    final, (states, saved) = loop(joined(problem, weights), state, x, mask, reverse, unroll)
    return states, final, gates(problem, saved)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def recurrence(
    forward: Forward,
    problem: Problem,
    reverse: bool,
    unroll: int,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
) -> tuple[Array, State]:
    """Runs ``forward``, with the derivative above.

    Args:
      forward: ``(problem, reverse, unroll, weights, x, state, mask, saves=True)`` gives the states
        after each step, the final state, and what :mod:`.tangents` needs, unless ``saves`` is
        False.
      problem: the layer's problem.
      reverse: runs from the last step to the first.
      unroll: steps per round of the loops.
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
    before = tuple(_shifted(s, first, reverse) for s, first in zip(states, state, strict=True))
    from_input = _input_tangent(problem, weights, dweights, x, dx)
    from_weights = _by_weights(problem, before[0], dweights.r)
    if dweights.rb is not None:
        zeros = jnp.zeros(2 * problem.hidden, dweights.rb.dtype)
        from_weights = with_bias(from_weights, jnp.concatenate([zeros, dweights.rb]))
    inputs, step = linearised(problem, saved, before, states, from_input, from_weights)
    if mask is not None:  # in full, so that jax keeps no second loop to spread it
        mask = jnp.broadcast_to(mask, states[0].shape)
    # Turned once, before the loop: the loop that jax transposes this one into then multiplies by
    # the matrix as it lies in memory. Turned in it, on CPU every step takes half again as long.
    turned = weights.r.astype(problem.dtype).T

    def tangent(dstate: State, known: Any) -> tuple[State, None]:
        dh = dstate[0].astype(problem.dtype)
        recurrent = jax.lax.dot_general(dh, turned, (((1,), (1,)), ((), ())))
        return step(dstate, known, recurrent.astype(problem.wide)), None

    dfinal, ((dhs, *_), _) = loop(tangent, dstate, inputs, mask, reverse, unroll)
    return (states[0], final), (dhs, dfinal)


def _product(problem: Problem, a: Array, matrix: Array) -> Array:
    """Returns ``a @ matrix`` rounded to the problem's type.

    So is what jax transposes it into: the products of the backward pass take half precision where
    the forward ones do, and not float32 because their sums are.
    """
    flat = a.astype(problem.dtype).reshape(-1, a.shape[-1])
    result = (flat @ matrix.astype(problem.dtype)).astype(problem.wide)
    return result.reshape(*a.shape[:-1], matrix.shape[1])


def _by_weights(problem: Problem, a: Array, dmatrix: Array) -> Array:
    """Returns ``a @ dmatrix`` as :func:`_product`, written for the gradient that it turns into.

    That sums over the rows of ``a``, for which XLA:CPU takes a faster product if these lie in
    memory as columns.
    """
    if jax.default_backend() != "cpu":
        return _product(problem, a, dmatrix)
    turned = a.astype(problem.dtype).reshape(-1, a.shape[-1]).T
    turned = jax.lax.optimization_barrier(turned)  # or the compiler turns it back
    sums = (((0,), (0,)), ((), ()))
    result = jax.lax.dot_general(turned, dmatrix.astype(problem.dtype), sums)
    return result.astype(problem.wide).reshape(*a.shape[:-1], dmatrix.shape[1])


def _input_tangent(problem, weights, dweights, x, dx):
    if weights.w is None:
        tangent = jnp.concatenate([dx.astype(problem.wide)] * problem.gates, axis=-1)
    else:
        tangent = _product(problem, dx, weights.w) + _by_weights(problem, x, dweights.w)
    return with_bias(tangent, dweights.b)


def _shifted(states: Array, first: Array, reverse: bool) -> Array:
    """Returns the states that each step started from."""
    if reverse:
        return jnp.concatenate([states[1:], first[None]])
    return jnp.concatenate([first[None], states[:-1]])
