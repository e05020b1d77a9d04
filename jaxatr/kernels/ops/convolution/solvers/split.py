"""XLA's convolution on many pieces of the batch at once.

XLA:CPU gives a convolution with few features to a library that runs it on one core, at full speed.
More than eight operations that become ready together it spreads over its threads; the inner call
is what makes them ready together.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.solvers import xla
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

MINIMUM, MAXIMUM = 9, 32


def applies(problem: Problem) -> bool:
    """Says whether the batch can be cut into enough pieces; a weight gradient has no batch."""
    return problem.direction != "weight" and bool(_counts(problem))


def _counts(problem: Problem) -> list[int]:
    """Returns into how many equal pieces the batch can be cut, the most first."""
    return [n for n in reversed(problem.batch_divisors) if MINIMUM <= n <= MAXIMUM]


def run(count: int, problem: Problem, a: Array, b: Array) -> Array:
    """Returns the result of a direction that has a batch, cut into ``count`` pieces."""
    batch, *rest = problem.x_shape
    piece = dataclasses.replace(problem, x_shape=(batch // count, *rest))
    at_once = jax.jit(lambda parts, b: [xla.run(piece, part, b) for part in parts])
    return jnp.concatenate(at_once(jnp.split(a, count), b))


class Split(Solver):
    """Batches that can be cut into enough pieces; tuned by how many."""

    name = "split"

    def applies(self, problem: Problem, device: Device) -> bool:
        """Says whether the batch can be cut into enough pieces."""
        return applies(problem)

    def workspace_bytes(self, problem: Problem) -> int:
        """The pieces of the argument and of the result."""
        return problem.bytes(problem.x_shape) + problem.bytes(problem.y_shape)

    def configs(self, problem: Problem) -> Sequence[Config]:
        """The most pieces first."""
        return [(("pieces", count),) for count in _counts(problem)]

    def build(self, problem: Problem, config: Config):
        """Returns :func:`run` of the problem."""
        return partial(run, int(dict(config)["pieces"]), problem)


SOLVERS = (Split(),)
