"""XLA's convolution on many pieces of the batch in parallel.

XLA:CPU passes a convolution with few features to a library that uses a single core. If more than
eight operations become ready at the same time, XLA:CPU distributes them over its threads; the inner
call makes the pieces ready at the same time.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import xla
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

MINIMUM, MAXIMUM = 9, 32


def applies(problem: ConvProblem) -> bool:
    """Returns whether the result has a batch that can be cut into enough pieces."""
    return problem.direction != "weight" and bool(_counts(problem))


def _counts(problem: ConvProblem) -> list[int]:
    """Returns the possible numbers of equal pieces of the batch, the largest first."""
    return [n for n in reversed(problem.batch_divisors) if MINIMUM <= n <= MAXIMUM]


def run(count: int, problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes the forward or data direction with the batch cut into ``count`` pieces."""
    batch, *rest = problem.x_shape
    piece = dataclasses.replace(problem, x_shape=(batch // count, *rest))
    at_once = jax.jit(lambda parts, b: [xla.run(piece, part, b) for part in parts])
    return jnp.concatenate(at_once(jnp.split(a, count), b))


class Split(Solver):
    """Solves batches that can be cut into enough pieces; tuned by the number of pieces."""

    name = "split"
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the batch can be cut into enough pieces."""
        return applies(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the pieces of the argument and of the result."""
        return problem.bytes(problem.x_shape) + problem.bytes(problem.y_shape)

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns the numbers of pieces, the largest first."""
        return [(("pieces", count),) for count in _counts(problem)]


PART = Split()
