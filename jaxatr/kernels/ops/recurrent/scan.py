"""One product for the inputs of all steps (eq. 12), then a loop, with jax's own derivative."""

from jaxatr.kernels.ops.recurrent.cells import State, advance, input_part, with_bias
from jaxatr.kernels.ops.recurrent.loop import loop
from jaxatr.kernels.ops.recurrent.problem import Problem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array


def applies(problem: Problem) -> bool:
    """Returns True."""
    del problem
    return True


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
    # In the loop, the derivative would accumulate the bias's gradient at every step.
    part = with_bias(input_part(problem, weights, x), weights.b)
    recurrent = weights._replace(b=None)
    final, ((hs, *_), _) = loop(
        lambda state, part: advance(problem, recurrent, part, state),
        state,
        part,
        mask,
        reverse,
        unroll,
    )
    return hs, final
