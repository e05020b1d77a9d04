"""The algorithms by name. Each comes from a module with ``applies(problem)`` and ``run(...)``."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jaxatr.kernels.ops.recurrent import gemm, pallas, persistent, scan, step
from jaxatr.kernels.ops.recurrent.cells import State
from jaxatr.kernels.ops.recurrent.problem import Problem
from jaxatr.typing import Array


class Algorithm(NamedTuple):
    """One way to compute one direction of one layer.

    Attributes:
      applies: ``problem -> bool``, whether it can compute the problem.
      run: ``(problem, weights, x, state, mask, reverse, unroll=1)`` returns the states ``h`` after
        each step and the final state. Arrays are time-major: ``x`` is ``[t, b, d]``, and ``mask``
        is ``[t, b, 1]`` or None.
    """

    applies: Callable[[Problem], bool]
    run: Callable[..., tuple[Array, State]]


ALGORITHMS = {
    "scan": Algorithm(scan.applies, scan.run),
    "step": Algorithm(step.applies, step.run),
    "gemm": Algorithm(gemm.applies, gemm.run),
    "step_gemm": Algorithm(step.applies, gemm.run_joined),
    "hopper": Algorithm(partial(pallas.applies, "hopper"), partial(pallas.run, "hopper")),
    "persistent": Algorithm(persistent.applies, persistent.run),
    "tpu": Algorithm(partial(pallas.applies, "tpu"), partial(pallas.run, "tpu")),
}
