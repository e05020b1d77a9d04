"""Which algorithm to use, by rule."""

from jaxatr.kernels.ops.recurrent import gemm
from jaxatr.kernels.ops.recurrent.problem import Problem


def choose(problem: Problem) -> str:
    """Returns the algorithm that is expected to be the fastest for forward and backward."""
    return "gemm" if gemm.applies(problem) else "scan"
