"""The weight gradient as a product whose left operand is transposed in memory first.

It sums over the pixels, which are the rows of both operands. XLA:CPU's fast product wants the sum
along the left operand's last axis, and gives anything else to a slower library. Whether a copy in
that order pays, and of which operand, is measured. Databases and records of runs know the solver
as ``turned``.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.ops.convolution.solvers import matmul
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array


def run(side: str, problem: Problem, x: Array, y: Array) -> Array:
    """Returns the weight gradient; the images (``"x"``) or the results (``"y"``) are transposed."""
    depth, features = math.prod(problem.w_shape[:3]), problem.w_shape[3]
    if side == "x":
        product = _transposed_patches(problem, x) @ y.reshape(-1, features)
    else:
        patches = jnp.concatenate(matmul.shifted(problem, x), axis=-1).reshape(-1, depth)
        transposed = in_memory(y.reshape(-1, features).T)
        # Without this one, too, the compiler would cancel both transpositions.
        product = in_memory(transposed @ patches).T
    return product.reshape(problem.w_shape)


def in_memory(array: Array) -> Array:
    """Returns an array that the compiler writes down as it is, and does not see through."""
    return jax.lax.optimization_barrier(array)


def _transposed_patches(problem: Problem, x: Array) -> Array:
    """Returns ``[taps * c, pixels]``; the image is transposed once, the taps are cut from it.

    First each tap's columns, then of those its rows: so that most of what is copied are whole rows,
    and no copy chooses among all taps.
    """
    transposed = in_memory(pad(x, *problem.padding).transpose(3, 0, 1, 2))
    columns = in_memory(jnp.concatenate(_steps(problem, transposed, axis=1)))
    whole = jnp.concatenate(_steps(problem, columns, axis=0))
    return in_memory(whole.reshape(-1, whole[0].size))


def _steps(problem: Problem, images: Array, axis: int) -> list[Array]:
    """Returns, for each of a kernel's rows (axis 0) or columns (1), those of the images it meets.

    Args:
      problem: whose stride and dilation count.
      images: ``[c, b, h, w]``.
      axis: 0 or 1.
    """
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    reach = (problem.y_shape[1 + axis] - 1) * stride + 1
    return [
        jax.lax.slice_in_dim(images, first, first + reach, stride, axis=2 + axis)
        for first in range(0, problem.w_shape[axis] * dilation, dilation)
    ]


def workspace_bytes(problem: Problem) -> int:
    """Returns the bytes of the patches, of the columns that they are cut from, and of the copy."""
    images = (1 + problem.w_shape[1]) * problem.bytes(problem.x_shape)
    return matmul.patch_bytes(problem) + images


class Transposed(Solver):
    """Weight gradients of one group, on CPU; tuned by which operand is transposed."""

    name = "turned"
    version = 2  # columns first, then rows

    def applies(self, problem: Problem, device: Device) -> bool:
        """Says whether it is such a gradient; elsewhere products do not mind."""
        return problem.direction == "weight" and problem.groups == 1 and device.platform == "cpu"

    def workspace_bytes(self, problem: Problem) -> int:
        """The patches, the columns that they are cut from, and the copy."""
        return workspace_bytes(problem)

    def configs(self, problem: Problem) -> Sequence[Config]:
        """The side that was mostly the faster first: not only the one with fewer columns."""
        taps, (channels, features) = math.prod(problem.w_shape[:2]), problem.w_shape[2:]
        few_results = taps > 1 and features <= 64
        plain = max(problem.stride) == 1 or channels <= 4
        images_first = taps * channels <= features or (few_results and plain)
        return [(("side", side),) for side in ("xy" if images_first else "yx")]

    def build(self, problem: Problem, config: Config):
        """Returns :func:`run` of the problem."""
        return partial(run, str(dict(config)["side"]), problem)


SOLVERS = (Transposed(),)
