"""Elementwise sums of products, for groups too small for matrix products.

A depthwise convolution has one multiplication per tap and element; XLA fuses all of them into one
pass over the image.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import partial, reduce

import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.inlining import outlined
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import matmul, taps
from jaxatr.kernels.ops.sums import sums
from jaxatr.kernels.solver import Solver
from jaxatr.typing import Array

_PRODUCTS = 16  # the most products per tap and pixel within a group; more are slow to compile
_TERMS = 200  # the most terms of one result; more are slow to compile
# The most taps of a kernel for which each term is placed within the padding. For more taps the
# compiler does not vectorize that, so the image is padded first.
_PLACED = 9


def run(problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction; floats are summed in float32 or wider, others in their own type."""
    wide = problem.result_dtype  # int8's is int32
    wide = jnp.promote_types(wide, jnp.float32) if problem.floating else wide
    a, b = a.astype(wide), b.astype(wide)
    if problem.direction == "weight":
        result = _weight(problem, a, b)
    elif math.prod(problem.w_shape[:2]) <= _PLACED:
        result = {"forward": _forward, "data": _data}[problem.direction](problem, a, b)
    elif problem.direction == "forward":
        result = matmul.forward(*_padded(problem, a), b, _products)
    else:
        result = matmul.data(problem, a, b, _products)
    return result.astype(problem.result_dtype)


def _padded(problem: ConvProblem, x: Array) -> tuple[ConvProblem, Array]:
    """Returns the padded images, written to memory, and the problem on them without padding."""
    rows, columns = problem.padding
    x = outlined(partial(pad, rows=rows, columns=columns))(x)
    return dataclasses.replace(problem, x_shape=x.shape, padding=((0, 0), (0, 0))), x


def _products(problem: ConvProblem, parts: Sequence[Array], w: Array) -> Array:
    """Returns the sum over taps of each part times its weights, within each group.

    Args:
      problem: the problem to compute.
      parts: the pixels that each tap meets, ``[b, h, w, groups * m]`` per tap.
      w: the weights, ``[taps, m, groups * n]``.
    """
    taps, members, features = w.shape
    w = w.reshape(taps, members, problem.groups, -1)
    return _sum(
        _members(problem, part)[..., c, None] * w[tap, c]
        for tap, part in enumerate(parts)
        for c in range(members)
    )


def _forward(problem: ConvProblem, x: Array, w: Array) -> Array:
    result = jnp.zeros(problem.y_shape, x.dtype)
    for row, column in taps.pairs(problem):
        met = _members(problem, taps.pixels(problem, x, row, column))
        weights = _tap(problem, w, row, column)
        part = _sum(met[..., c, None] * weights[:, c] for c in range(met.shape[-1]))
        result += taps.placed(part, problem.y_shape, (row.result, column.result), (1, 1))
    return result


def _data(problem: ConvProblem, y: Array, w: Array) -> Array:
    result = jnp.zeros(problem.x_shape, y.dtype)
    for row, column in taps.pairs(problem):
        met = _members(problem, taps.results(y, row, column))
        weights = _tap(problem, w, row, column)
        part = _sum(met[..., f, None] * weights[:, :, f] for f in range(met.shape[-1]))
        first = row.pixel, column.pixel
        result += taps.placed(part, problem.x_shape, first, problem.stride)
    return result


def _weight(problem: ConvProblem, x: Array, y: Array) -> Array:
    problem, x = _padded(problem, x)
    (sy, sx), width, depth = problem.stride, problem.y_shape[2], problem.w_shape[2]

    def term(top: int, left: int, c: int, start: int, stop: int) -> Array:
        rows = slice(top + start * sy, top + (stop - 1) * sy + 1, sy)
        pixels = x[:, rows, left : left + (width - 1) * sx + 1 : sx]
        pixels, results = _members(problem, pixels), _members(problem, y[:, start:stop])
        return (pixels[..., c, None] * results).reshape(*results.shape[:3], -1)

    terms = [partial(term, *corner, c) for corner in matmul.corners(problem) for c in range(depth)]
    return sums(terms, problem.y_shape[1]).reshape(problem.w_shape)


def _sum(parts: Iterable[Array]) -> Array:
    """Returns the sum of ``[b, h, w, groups, members]`` arrays as ``[b, h, w, channels]``."""
    total = reduce(jnp.add, parts)
    return total.reshape(*total.shape[:3], -1)


def _members(problem: ConvProblem, array: Array) -> Array:
    """Splits ``[b, h, w, channels]`` into ``[b, h, w, groups, members]``."""
    return array.reshape(*array.shape[:3], problem.groups, -1)


def _tap(problem: ConvProblem, w: Array, row: taps.Run, column: taps.Run) -> Array:
    """Returns the weights of a tap, ``[groups, channels, features]``, sizes per group."""
    weights = w[row.tap, column.tap]
    return weights.reshape(len(weights), problem.groups, -1).transpose(1, 0, 2)


def applies(problem: ConvProblem) -> bool:
    """Returns whether the groups are small and the kernel is small enough to unroll."""
    depth, features = problem.w_shape[2], problem.w_shape[3] // problem.groups
    few = depth * features <= _PRODUCTS
    return problem.groups > 1 and few and math.prod(problem.w_shape[:2]) * depth <= _TERMS


class Direct(Solver):
    """Solves depthwise convolutions and others of many small groups."""

    name = "direct"
    version = 2  # sums over pixels in blocks
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the groups and the kernel are small."""
        return applies(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of one tap's part of the result, in case it is not fused."""
        return problem.bytes(problem.result_shape)


PART = Direct()
