"""The paper's single products: all inputs at once, and all weight gradients at once.

Forward: eq. 11 and 12, or the product of ``[x, h]`` per step, which XLA:CPU prefers. Backward: one
recurrent product per step (eq. 15), then one product each for the gradients of the inputs (eq. 17),
of the input's matrix (eq. 19) and of the recurrent matrix (eq. 21). jax's own derivative of the
loop would instead add to the recurrent matrix's gradient at every step.

The derivative is given as a linear loop (``custom_jvp``), which jax transposes: a ``custom_vjp``
would compute the same, but forward mode would be lost.
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.cells import State, advance, input_part, product, with_bias
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import Problem
from jaxatr.kernels.ops.recurrent.step import applies as can_join
from jaxatr.kernels.ops.recurrent.step import joined
from jaxatr.kernels.ops.recurrent.tangents import linearised
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array


def applies(problem: Problem, join: bool = False) -> bool:
    """Says whether the reset gate (if any) acts after the product, which the derivative needs."""
    return can_join(problem) if join else problem.reset_after


def run(
    problem: Problem,
    weights: Weights,
    x: Array,
    state: State,
    mask: Array | None,
    reverse: bool,
    unroll: int = 1,
    join: bool = False,
) -> tuple[Array, State]:
    """Returns the states ``h`` after each step, ``[t, b, h]``, and the final state."""
    return _recurrence(problem, reverse, unroll, join, weights, x, state, mask)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _recurrence(problem, reverse, unroll, join, weights, x, state, mask):
    states, final, _ = _forward(problem, reverse, unroll, join, weights, x, state, mask)
    return states[0], final


def _forward(problem, reverse, unroll, join, weights, x, state, mask):
    if join:
        step, inputs = joined(problem, weights), x
    else:
        inputs = input_part(problem, weights, x)

        def step(state, part):
            return advance(problem, weights, part, state)

    final, (states, saved) = loop(step, state, inputs, mask, reverse, unroll)
    return states, final, saved


@_recurrence.defjvp
def _derivative(problem, reverse, unroll, join, primals, tangents):
    weights, x, state, mask = primals
    dweights, dx, dstate, _ = tangents
    states, final, saved = _forward(problem, reverse, unroll, join, weights, x, state, mask)
    before = tuple(_shifted(s, first, reverse) for s, first in zip(states, state, strict=True))
    _, from_input = jax.jvp(partial(input_part, problem), (weights, x), (dweights, dx))
    from_weights = product(problem, before[0], dweights.r)
    if dweights.rb is not None:
        zeros = jnp.zeros(2 * problem.hidden, dweights.rb.dtype)
        from_weights = with_bias(from_weights, jnp.concatenate([zeros, dweights.rb]))
    inputs, step = linearised(problem, saved, before, states, from_input, from_weights)
    if mask is not None:  # in full, so that jax keeps no second loop to spread it
        mask = jnp.broadcast_to(mask, states[0].shape)
    dfinal, ((dhs, *_), _) = loop(
        lambda dstate, known: (
            step(dstate, known, product(problem, dstate[0], weights.r)),
            None,
        ),
        dstate,
        inputs,
        mask,
        reverse,
        unroll,
    )
    return (states[0], final), (dhs, dfinal)


def _shifted(states: Array, first: Array, reverse: bool) -> Array:
    """Returns the states that each step started from."""
    if reverse:
        return jnp.concatenate([states[1:], first[None]])
    return jnp.concatenate([first[None], states[:-1]])
