"""One product for the inputs of all steps (eq. 12), then a loop, with jax's own derivative."""

from collections.abc import Callable

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm, of_steps
from jaxatr.kernels.ops.recurrent.cells import advance, input_part, with_bias
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem
from jaxatr.kernels.ops.recurrent.weights import Weights
from jaxatr.typing import Array


def _steps(problem: RecurrentProblem, weights: Weights, x: Array) -> tuple[Callable, Array]:
    # In the loop, the derivative would accumulate the bias's gradient at every step.
    part = with_bias(input_part(problem, weights, x), weights.b)
    recurrent = weights._replace(b=None)
    return lambda state, part: advance(problem, recurrent, part, state), part


run = of_steps(_steps)
PART = Algorithm(lambda problem: True, run)
