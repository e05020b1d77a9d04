"""A matrix product per tap of the kernel, over the pixels that the tap meets, for small images.

On an image of 2×2 pixels, a 3×3 kernel has 36 pairs of tap and result, 20 of which meet only
padding. A product per tap skips those and reads each tap's weights in place.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.windows import Shape
from jaxatr.kernels.solver import Solver
from jaxatr.typing import Array


class Run(NamedTuple):
    """Along one axis, the results that a tap contributes to and the pixels that it meets."""

    tap: int
    result: int  # index of the first result
    pixel: int  # index of the first pixel; the next result's pixel is one stride further
    count: int


def applies(problem: ConvProblem) -> bool:
    """Returns whether there is one group and at most 25 taps."""
    return problem.groups == 1 and math.prod(problem.w_shape[:2]) <= 25


def run(problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction."""
    return {"forward": _forward, "data": _data, "weight": _weight}[problem.direction](problem, a, b)


def _forward(problem: ConvProblem, x: Array, w: Array) -> Array:
    dtype = problem.result_dtype
    result = jnp.zeros(problem.y_shape, dtype)
    for row, column in pairs(problem):
        met = pixels(problem, x, row, column)
        part = jnp.matmul(met, w[row.tap, column.tap], preferred_element_type=dtype)
        result += placed(part, problem.y_shape, (row.result, column.result), (1, 1))
    return result


def _data(problem: ConvProblem, y: Array, w: Array) -> Array:
    result = jnp.zeros(problem.x_shape, y.dtype)
    for row, column in pairs(problem):
        part = results(y, row, column) @ w[row.tap, column.tap].T
        result += placed(part, problem.x_shape, (row.pixel, column.pixel), problem.stride)
    return result


def _weight(problem: ConvProblem, x: Array, y: Array) -> Array:
    blocks = {
        (row.tap, column.tap): jnp.einsum(
            "bhwc,bhwf->cf", pixels(problem, x, row, column), results(y, row, column)
        )
        for row, column in pairs(problem)
    }
    height, width, channels, features = problem.w_shape
    none = jnp.zeros((channels, features), x.dtype)
    whole = [blocks.get((i, j), none) for i in range(height) for j in range(width)]
    return jnp.stack(whole).reshape(problem.w_shape)


def pairs(problem: ConvProblem) -> Iterator[tuple[Run, Run]]:
    """Yields the runs along rows and columns of every tap that meets the image."""
    columns = _runs(problem, 1)
    return ((row, column) for row in _runs(problem, 0) for column in columns)


def _runs(problem: ConvProblem, axis: int) -> list[Run]:
    size, results = problem.x_shape[1 + axis], problem.y_shape[1 + axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    runs = []
    for tap in range(problem.w_shape[axis]):
        offset = tap * dilation - problem.padding[axis][0]  # result o: pixel o * stride + offset
        first = max(0, -(offset // stride))
        last = min(results - 1, (size - 1 - offset) // stride)
        if first <= last:
            runs.append(Run(tap, first, first * stride + offset, last - first + 1))
    return runs


def pixels(problem: ConvProblem, x: Array, row: Run, column: Run) -> Array:
    """Returns the pixels of ``x`` that a tap meets."""
    rows, columns = (
        slice(run.pixel, run.pixel + (run.count - 1) * stride + 1, stride)
        for run, stride in zip((row, column), problem.stride, strict=True)
    )
    return x[:, rows, columns]


def results(y: Array, row: Run, column: Run) -> Array:
    """Returns the part of ``y`` that a tap contributes to."""
    return y[:, row.result : row.result + row.count, column.result : column.result + column.count]


def placed(part: Array, shape: Shape, first: tuple[int, int], step: tuple[int, int]) -> Array:
    """Returns zeros of ``shape`` with ``part`` placed from ``first`` on at intervals ``step``."""
    edges = []
    for axis in (0, 1):
        reach = (part.shape[1 + axis] - 1) * step[axis] + 1
        edges.append((first[axis], shape[1 + axis] - first[axis] - reach, step[axis] - 1))
    return jax.lax.pad(part, jnp.zeros((), part.dtype), [(0, 0, 0), *edges, (0, 0, 0)])


class Taps(Solver):
    """Solves kernels of few taps and one group, adding one tap's product at a time."""

    name = "taps"
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether there is one group and at most 25 taps."""
        return applies(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of one tap's part of the result."""
        return problem.bytes(problem.result_shape)


PART = Taps()
