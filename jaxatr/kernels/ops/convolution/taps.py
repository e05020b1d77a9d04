"""A matrix product per tap of the kernel, over the pixels that the tap meets: for small images.

On an image of 2×2 pixels a 3×3 kernel has 36 pairs of tap and result, of which 20 meet nothing but
padding. A product per tap leaves those out, and reads each tap's weights where they lie.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.typing import Array


class _Run(NamedTuple):
    """Along one axis, the results that one tap has a part in, and the pixels it meets for them."""

    tap: int
    result: int  # the first
    pixel: int  # the first; one further result is one stride further
    count: int


def applies(problem: Problem) -> bool:
    """Says whether there is a single group, and no more taps than are worth a product each."""
    return problem.groups == 1 and math.prod(problem.w_shape[:2]) <= 25


def run(problem: Problem, a: Array, b: Array) -> Array:
    """Returns the result of any direction."""
    return {"forward": _forward, "data": _data, "weight": _weight}[problem.direction](problem, a, b)


def _forward(problem: Problem, x: Array, w: Array) -> Array:
    result = jnp.zeros(problem.y_shape, x.dtype)
    for row, column in _pairs(problem):
        part = _pixels(problem, x, row, column) @ w[row.tap, column.tap]
        result += _placed(part, problem.y_shape, (row.result, column.result), (1, 1))
    return result


def _data(problem: Problem, y: Array, w: Array) -> Array:
    result = jnp.zeros(problem.x_shape, y.dtype)
    for row, column in _pairs(problem):
        part = _results(y, row, column) @ w[row.tap, column.tap].T
        result += _placed(part, problem.x_shape, (row.pixel, column.pixel), problem.stride)
    return result


def _weight(problem: Problem, x: Array, y: Array) -> Array:
    blocks = {
        (row.tap, column.tap): jnp.einsum(
            "bhwc,bhwf->cf", _pixels(problem, x, row, column), _results(y, row, column)
        )
        for row, column in _pairs(problem)
    }
    height, width, channels, features = problem.w_shape
    none = jnp.zeros((channels, features), x.dtype)
    whole = [blocks.get((i, j), none) for i in range(height) for j in range(width)]
    return jnp.stack(whole).reshape(problem.w_shape)


def _pairs(problem: Problem) -> Iterator[tuple[_Run, _Run]]:
    """Yields rows and columns of every tap that meets the image."""
    columns = _runs(problem, 1)
    return ((row, column) for row in _runs(problem, 0) for column in columns)


def _runs(problem: Problem, axis: int) -> list[_Run]:
    size, results = problem.x_shape[1 + axis], problem.y_shape[1 + axis]
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    runs = []
    for tap in range(problem.w_shape[axis]):
        offset = tap * dilation - problem.padding[axis][0]  # result o meets pixel o·stride + offset
        first = max(0, -(offset // stride))
        last = min(results - 1, (size - 1 - offset) // stride)
        if first <= last:
            runs.append(_Run(tap, first, first * stride + offset, last - first + 1))
    return runs


def _pixels(problem: Problem, x: Array, row: _Run, column: _Run) -> Array:
    rows, columns = (
        slice(run.pixel, run.pixel + (run.count - 1) * stride + 1, stride)
        for run, stride in zip((row, column), problem.stride, strict=True)
    )
    return x[:, rows, columns]


def _results(y: Array, row: _Run, column: _Run) -> Array:
    return y[:, row.result : row.result + row.count, column.result : column.result + column.count]


def _placed(
    part: Array, shape: tuple[int, ...], first: tuple[int, int], step: tuple[int, int]
) -> Array:
    """Returns zeros of ``shape`` with ``part`` in them, from ``first`` on, ``step`` apart."""
    edges = []
    for axis in (0, 1):
        reach = (part.shape[1 + axis] - 1) * step[axis] + 1
        edges.append((first[axis], shape[1 + axis] - first[axis] - reach, step[axis] - 1))
    return jax.lax.pad(part, jnp.zeros((), part.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
