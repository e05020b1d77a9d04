"""Which algorithm to use on CPU, by rule; the measurements are made by experiments/benchmarks."""

from jaxatr.kernels.convolution import winograd
from jaxatr.kernels.convolution.problem import Problem


def choose(problem: Problem) -> str:
    """Returns the algorithm that is expected to be the fastest for a problem on CPU."""
    _, height, width, _ = problem.y_shape
    if problem.w_shape[:2] == (1, 1):
        return "matmul"
    if winograd.applies(problem) and min(problem.w_shape[2:]) >= 32:
        return "winograd"
    return "matmul" if height * width <= 16 else "xla"
