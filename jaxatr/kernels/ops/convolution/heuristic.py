"""Which algorithm to use on CPU, by rule.

The rules were read off the timings of ``experiments/benchmarks/convolution.py`` and, for 1x1
kernels, ``kernels.py`` (what they recorded stands beside them), for the layers of residual networks
on a machine of two cores.
"""

import math

from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.solvers import split, taps, winograd

_SINGLE = ("float32", "float64")


def choose(problem: Problem) -> str:
    """Returns the algorithm that is expected to be the fastest for a problem on CPU."""
    channels, features = problem.w_shape[2:]
    pixels = math.prod(problem.y_shape[1:3])
    if problem.groups > 1:
        return _grouped(problem)
    if not problem.floating:
        return "xla"
    if problem.w_shape[:2] == (1, 1):
        return "matmul" if problem.direction == "forward" else "taps"
    if _few(problem, pixels):
        return "taps"
    # Below this the transformations of the tiles cost more than they save.
    if winograd.applies(problem) and min(channels, features) >= 32 and problem.dtype in _SINGLE:
        return _tile(problem)
    if channels <= 4:  # the first layer: patches of so few channels are slow to gather
        cut = problem.direction == "forward" and 32 * 32 <= pixels <= 64 * 64
        return "split" if cut and split.applies(problem) else "xla"
    # XLA's form collapses on small images, its gradients by up to a hundred times.
    limit = 8 * 8 if problem.direction == "forward" else 4 * 4
    return "matmul" if pixels <= limit else "xla"


def _few(problem: Problem, pixels: int) -> bool:
    """Says whether so much of each tap falls on padding that a product per tap is the fastest."""
    strided = problem.direction == "data" and max(problem.stride) > 1
    return taps.applies(problem) and 1 < pixels <= (4 * 4 if strided else 2 * 2)


def _tile(problem: Problem) -> str:
    """Returns Winograd's form with the better tile, whose larger size takes longer to compile."""
    sides = problem.y_shape[1:3]
    if problem.direction == "weight":
        return "winograd4" if math.prod(sides) >= 7 * 7 else "winograd"
    fits = all(side % 4 == 0 for side in sides)
    return "winograd4" if fits and math.prod(sides) >= 28 * 28 else "winograd"


def _grouped(problem: Problem) -> str:
    if problem.direction == "weight":
        return "matmul"  # XLA's grouped weight gradient is up to a hundred times slower
    depthwise = problem.w_shape[2] == 1
    return "winograd" if depthwise and winograd.applies(problem) else "xla"
