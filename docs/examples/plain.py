"""One product of the input and one of the state in each step."""

from jaxatr.kernels.ops.recurrent.algorithm import Algorithm, of_steps
from jaxatr.kernels.ops.recurrent.cells import advance, input_part


def steps(problem, weights, x):
    """Returns the step, (state, input) -> (state, saved), and its inputs."""

    def step(state, x):
        return advance(problem, weights, input_part(problem, weights, x), state)

    return step, x


PART = Algorithm(lambda problem: True, of_steps(steps))
