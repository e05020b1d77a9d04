"""The loop over time steps, shared by the algorithms."""

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
    """Scans ``step`` over the leading axis of ``inputs``; masked steps leave the state unchanged.

    In reverse, the state of a short sequence keeps its initial value until the sequence's last step
    is reached, so that sequences need not be reversed individually.

    Args:
      step: ``(state, input) -> (state, output)``.
      state: the initial state.
      inputs: arrays ``[t, ...]``.
      mask: ``[t, b, 1]`` or ``[t, b, h]``, True where a sequence has the step; None for all steps.
      reverse: whether to run from the last step to the first.
      unroll: steps per iteration of the loop.

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
