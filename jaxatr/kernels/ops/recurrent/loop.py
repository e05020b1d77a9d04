"""The loop over time that the algorithms share."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.typing import Array


def loop(
    step: Callable[[State, Any], tuple[State, Any]],
    state: State,
    inputs: Any,
    mask: Array | None,
    reverse: bool,
    unroll: int = 1,
) -> tuple[State, tuple[State, Any]]:
    """Runs ``step`` over the leading axis of ``inputs``; a masked step leaves the state as it is.

    Sequences that end early need no turning round: run backwards, their state waits at its initial
    value until their last step is reached.

    Args:
      step: ``(state, input) -> (state, output)``.
      state: the initial state.
      inputs: arrays ``[t, ...]``.
      mask: ``[t, b, 1]`` or ``[t, b, h]``, True at the steps that a sequence has; None for all.
      reverse: runs from the last step to the first.
      unroll: steps per round of the loop.

    Returns:
      The final state, and the stacked states after each step with the stacked outputs.
    """

    def body(state: State, current: Any) -> tuple[State, tuple[State, Any]]:
        inputs, valid = current
        new, output = step(state, inputs)
        if valid is not None:
            new = tuple(jnp.where(valid, n, o) for n, o in zip(new, state, strict=True))
        return new, (new, output)

    return jax.lax.scan(body, state, (inputs, mask), reverse=reverse, unroll=unroll)
