"""Implicit GEMM on TPUs, by the Pallas kernel without an epilogue.

The data gradient at stride 1 is the forward product with the kernel rotated by 180 degrees.
"""

from typing import Any

import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.pallas import kernel, runs_on
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.rows import Rows
from jaxatr.kernels.solver import Solver
from jaxatr.typing import Array


def run(problem: ConvProblem, a: Array, b: Array, **options: Any) -> Array:
    """Computes the forward or data direction.

    Args:
      problem: a problem that :func:`fits`.
      a: the direction's first argument.
      b: the direction's second argument.
      **options: passed on to the Pallas kernel.
    """
    if problem.direction == "data":
        b = jnp.swapaxes(b[::-1, ::-1], 2, 3)
    else:
        a = a[:, :: problem.stride[0], :: problem.stride[1]]
    module = kernel("tpu", "convolution")
    return module.convolution(a, b, rows_of(problem), Epilogue(), **options)


def is_plain(problem: ConvProblem) -> bool:
    """Returns whether the kernel supports the direction and the geometry.

    It supports the forward and data directions of one group without dilation at stride 1, and the
    forward direction of 1x1 kernels without padding at any stride.
    """
    if problem.direction == "weight" or problem.groups > 1 or problem.dilation != (1, 1):
        return False
    pointwise = problem.w_shape[:2] == (1, 1) and not any(map(any, problem.padding))
    strided = problem.stride != (1, 1)
    if strided and not (pointwise and problem.direction == "forward"):
        return False
    return min(edge for pad in rows_of(problem).padding for edge in pad) >= 0


def fits(problem: ConvProblem) -> bool:
    """Returns whether a problem is plain (:func:`is_plain`) and the kernel supports its sizes."""
    if not is_plain(problem):
        return False
    inputs, outputs = problem.w_shape[2:]
    if problem.direction == "data":
        inputs, outputs = outputs, inputs
    return kernel("tpu", "convolution").applies(rows_of(problem), inputs, outputs, problem.dtype)


def rows_of(problem: ConvProblem) -> Rows:
    """Returns the geometry of the rows that the kernel reads, after striding for a 1x1 kernel."""
    (down, across), (batch, height, width, _) = problem.w_shape[:2], problem.y_shape
    padding = problem.padding
    if problem.direction == "data":
        (top, bottom), (left, right) = padding
        padding = (down - 1 - top, down - 1 - bottom), (across - 1 - left, across - 1 - right)
        height, width = problem.x_shape[1:3]
    return Rows(batch, height, width, (down, across), padding)


class TPU(Solver):
    """Solves forward and data directions of stride 1 on TPUs."""

    name = "tpu"
    version = 2
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the device is a TPU and the problem :func:`fits`."""
        return runs_on("tpu", device) and fits(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the image's rows, copied once per column of the kernel."""
        rows, channels = rows_of(problem), problem.argument_shapes[0][3]
        return problem.bytes((rows.taps[1], rows.batch, rows.lines, rows.pitch, channels))


PART = TPU()
