"""XLA's convolution on many pieces of the batch at once.

XLA:CPU gives a convolution with few features to a library that runs it on one core, at full speed.
More than eight operations that become ready together it spreads over its threads; the inner call
is what makes them ready together.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution import xla
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.typing import Array

MINIMUM, MAXIMUM = 9, 32


def pieces(problem: Problem) -> int:
    """Returns into how many equal pieces the batch is cut; 1 if there is no good number."""
    batch = problem.x_shape[0]
    counts = range(min(batch, MAXIMUM), MINIMUM - 1, -1)
    return next((count for count in counts if batch % count == 0), 1)


def applies(problem: Problem) -> bool:
    """Says whether the batch can be cut into enough equal pieces."""
    return pieces(problem) > 1


def run(problem: Problem, a: Array, b: Array) -> Array:
    """Returns the result of any direction; a weight gradient has no batch, and is not cut."""
    if problem.direction == "weight":
        return xla.run(problem, a, b)
    count = pieces(problem)
    batch, *rest = problem.x_shape
    piece = dataclasses.replace(problem, x_shape=(batch // count, *rest))
    at_once = jax.jit(lambda parts, b: [xla.run(piece, part, b) for part in parts])
    return jnp.concatenate(at_once(jnp.split(a, count), b))
