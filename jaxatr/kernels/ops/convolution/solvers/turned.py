"""The weight gradient as a product whose left operand is transposed in memory first.

The weight gradient sums over the pixels, which are the rows of both operands. XLA:CPU's fast
product needs the sum along the left operand's last axis; anything else goes to a slower library.
Whether the copy pays, and of which operand, is measured. The solver's name in databases and records
is ``turned``.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import matmul
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array


def run(side: str, problem: ConvProblem, x: Array, y: Array) -> Array:
    """Computes the weight gradient, transposing the images (``"x"``) or the results (``"y"``)."""
    depth, features = math.prod(problem.w_shape[:3]), problem.w_shape[3]
    if side == "x":
        product = _transposed_patches(problem, x) @ y.reshape(-1, features)
    else:
        patches = jnp.concatenate(matmul.shifted(problem, x), axis=-1).reshape(-1, depth)
        transposed = in_memory(y.reshape(-1, features).T)
        # The second barrier keeps the compiler from cancelling the two transpositions.
        product = in_memory(transposed @ patches).T
    return product.reshape(problem.w_shape)


def in_memory(array: Array) -> Array:
    """Returns the array behind a barrier that makes the compiler write it in this order."""
    return jax.lax.optimization_barrier(array)


def _transposed_patches(problem: ConvProblem, x: Array) -> Array:
    """Returns ``[taps * c, pixels]``, sliced from an image that is transposed once.

    The columns of each tap are sliced first and its rows from these, so that most copies are of
    whole rows and no single copy selects among all taps.
    """
    transposed = in_memory(pad(x, *problem.padding).transpose(3, 0, 1, 2))
    columns = in_memory(jnp.concatenate(_steps(problem, transposed, axis=1)))
    whole = jnp.concatenate(_steps(problem, columns, axis=0))
    return in_memory(whole.reshape(-1, whole[0].size))


def _steps(problem: ConvProblem, images: Array, axis: int) -> list[Array]:
    """Returns the rows or columns of the images that each row or column of a kernel meets.

    Args:
      problem: the problem, which has the stride and the dilation.
      images: ``[c, b, h, w]``.
      axis: 0 for rows, 1 for columns.
    """
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    reach = (problem.y_shape[1 + axis] - 1) * stride + 1
    return [
        jax.lax.slice_in_dim(images, first, first + reach, stride, axis=2 + axis)
        for first in range(0, problem.w_shape[axis] * dilation, dilation)
    ]


def workspace_bytes(problem: ConvProblem) -> int:
    """Returns the size of the patches, of the columns they are sliced from, and of the copy."""
    images = (1 + problem.w_shape[1]) * problem.bytes(problem.x_shape)
    return matmul.patch_bytes(problem) + images


class Transposed(Solver):
    """Solves weight gradients of one group on CPU; tuned by the operand to transpose."""

    name = "turned"
    version = 2  # columns first, then rows
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether it is a weight gradient of one group on CPU."""
        return problem.direction == "weight" and problem.groups == 1 and device.platform == "cpu"

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the patches, of the columns and of the copy."""
        return workspace_bytes(problem)

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns the operands to transpose, the one that was usually faster first."""
        taps, (channels, features) = math.prod(problem.w_shape[:2]), problem.w_shape[2:]
        few_results = taps > 1 and features <= 64
        plain = max(problem.stride) == 1 or channels <= 4
        images_first = taps * channels <= features or (few_results and plain)
        return [(("side", side),) for side in ("xy" if images_first else "yx")]


PART = Transposed()
