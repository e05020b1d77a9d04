"""The algorithms by name; each is a module with ``applies(problem)`` and ``run(problem, a, b)``."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jaxatr.kernels.ops.convolution import matmul, split, taps, winograd, xla
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.typing import Array


class Algorithm(NamedTuple):
    """One way to compute a convolution.

    Attributes:
      applies: says whether it can compute the problem.
      run: ``(problem, a, b) -> result``, with the arguments and result of the problem's direction.
    """

    applies: Callable[[Problem], bool]
    run: Callable[[Problem, Array, Array], Array]


ALGORITHMS = {
    "xla": Algorithm(xla.applies, xla.run),
    "matmul": Algorithm(matmul.applies, matmul.run),
    "winograd": Algorithm(winograd.applies, partial(winograd.run, winograd.TWO)),
    "winograd4": Algorithm(winograd.applies, partial(winograd.run, winograd.FOUR)),
    "taps": Algorithm(taps.applies, taps.run),
    "split": Algorithm(split.applies, split.run),
}
