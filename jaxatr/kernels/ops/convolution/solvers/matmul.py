"""im2col: one matrix product over shifted images that are concatenated along the channels."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.solver import Solver
from jaxatr.typing import Array

#: A function ``(problem, parts, w) -> result`` like :func:`_product`.
Product: TypeAlias = Callable[[ConvProblem, Sequence[Array], Array], Array]


def run(problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes any direction."""
    if problem.direction == "weight":
        return _weight(problem, a, b)
    return {"forward": forward, "data": data}[problem.direction](problem, a, b, _product)


def forward(problem: ConvProblem, x: Array, w: Array, product: Product) -> Array:
    """Computes the forward direction by one product with all taps."""
    return product(problem, shifted(problem, x), w.reshape(-1, *w.shape[2:]))


def _weight(problem: ConvProblem, x: Array, y: Array) -> Array:
    parts, groups = shifted(problem, x), problem.groups
    depth, features = problem.w_shape[2:]
    patches, y = _patches(groups, parts), y.reshape(-1, groups, features // groups)
    if groups == 1:
        return (patches.reshape(-1, len(parts) * depth).T @ y[:, 0]).reshape(problem.w_shape)
    return jnp.einsum("ptgc,pgf->tcgf", patches, y).reshape(problem.w_shape)


def shifted(problem: ConvProblem, x: Array) -> list[Array]:
    """Returns the pixels that each tap of the kernel meets, ``[b, oh, ow, c]`` per tap."""
    x = pad(x, *problem.padding)
    (height, width), (sy, sx) = problem.y_shape[1:3], problem.stride
    return [
        x[:, top : top + (height - 1) * sy + 1 : sy, left : left + (width - 1) * sx + 1 : sx]
        for top, left in corners(problem)
    ]


def corners(problem: ConvProblem) -> list[tuple[int, int]]:
    """Returns, for each tap, the first row and column of the padded image that it meets."""
    tops = [i * problem.dilation[0] for i in range(problem.w_shape[0])]
    lefts = [j * problem.dilation[1] for j in range(problem.w_shape[1])]
    return [(top, left) for top in tops for left in lefts]


def _patches(groups: int, parts: Sequence[Array]) -> Array:
    """Concatenates the parts into ``[pixels, taps, groups, channels / groups]``."""
    whole = jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]
    return whole.reshape(-1, len(parts), groups, parts[0].shape[-1] // groups)


def _product(problem: ConvProblem, parts: Sequence[Array], w: Array) -> Array:
    """Returns the sum over taps of ``parts[tap] @ w[tap]`` within each group.

    Args:
      problem: the problem, which has the number of groups and the type of the result.
      parts: the pixels that each tap meets, ``[b, h, w, groups * m]`` per tap.
      w: the weights, ``[taps, m, groups * n]``.
    """
    groups, dtype = problem.groups, problem.result_dtype
    patches, (taps, depth, features) = _patches(groups, parts), w.shape
    if groups == 1:
        patches, w = patches.reshape(-1, taps * depth), w.reshape(-1, features)
        result = jnp.matmul(patches, w, preferred_element_type=dtype)
    else:
        w = w.reshape(taps, depth, groups, features // groups)
        result = jnp.einsum("ptgc,tcgf->pgf", patches, w, preferred_element_type=dtype)
    return result.reshape(*parts[0].shape[:3], features)


def data(problem: ConvProblem, y: Array, w: Array, product: Product) -> Array:
    """Computes the data gradient, one phase of the stride at a time.

    Pixels whose rows and columns have the same remainder modulo the stride form a phase and meet
    the same taps. Each phase is a convolution of ``y`` with stride 1; the phases are interleaved.
    """
    w = _turned(problem.groups, w)
    counts = [-(-n // s) for n, s in zip(problem.x_shape[1:3], problem.stride, strict=True)]
    phases = [[_phase(problem, axis, p) for p in range(problem.stride[axis])] for axis in (0, 1)]
    edges = [
        _reach(axis, count, size)
        for axis, count, size in zip(phases, counts, y.shape[1:3], strict=True)
    ]
    y = pad(y, *edges)

    def one(rows: list[tuple[int, int]], columns: list[tuple[int, int]]) -> Array:
        taps = [(*row, *column) for row in rows for column in columns]
        if not taps:
            return jnp.zeros((y.shape[0], *counts, problem.x_shape[3]), y.dtype)
        parts = []
        for _, top, _, left in taps:
            top, left = top + edges[0][0], left + edges[1][0]
            parts.append(y[:, top : top + counts[0], left : left + counts[1]])
        return product(problem, parts, jnp.stack([w[i, j] for i, _, j, _ in taps]))

    whole = jnp.stack([jnp.stack([one(r, c) for c in phases[1]], 3) for r in phases[0]], 2)
    whole = whole.reshape(y.shape[0], whole.shape[1] * whole.shape[2], -1, problem.x_shape[3])
    return whole[:, : problem.x_shape[1], : problem.x_shape[2]]


def _phase(problem: ConvProblem, axis: int, phase: int) -> list[tuple[int, int]]:
    """Returns the taps of a phase with their offsets, ``(tap, offset)``.

    Pixel ``q * stride + phase`` meets the tap in result ``q + offset``. Counted from the padded
    edge, pixel ``p`` meets tap ``i`` in result ``o`` if ``p = o * stride + i * dilation``.
    """
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    start = phase + problem.padding[axis][0]
    return [
        (tap, (start - tap * dilation) // stride)
        for tap in range(problem.w_shape[axis])
        if (start - tap * dilation) % stride == 0
    ]


def _reach(phases: list[list[tuple[int, int]]], count: int, size: int) -> tuple[int, int]:
    """Returns the zeros that the phases' offsets need before and after ``size`` results."""
    offsets = [offset for phase in phases for _, offset in phase]
    return max(0, -min(offsets)), max(0, max(offsets) + count - size)


def _turned(groups: int, w: Array) -> Array:
    """Swaps each group's inputs and outputs in a kernel: ``[kh, kw, f / g, c]``."""
    kh, kw, depth, features = w.shape
    w = w.reshape(kh, kw, depth, groups, features // groups)
    return w.transpose(0, 1, 4, 3, 2).reshape(kh, kw, features // groups, groups * depth)


def patch_bytes(problem: ConvProblem) -> int:
    """Returns the bytes of the shifted images, 0 for a 1x1 kernel of stride 1, which needs none."""
    taps = math.prod(problem.w_shape[:2])
    if taps == 1 and problem.stride == (1, 1):
        return 0
    if problem.direction == "data":
        taps = math.ceil(taps / math.prod(problem.stride))  # of each phase
        return problem.bytes(problem.x_shape[:3]) * taps * problem.w_shape[3]
    return problem.bytes(problem.y_shape[:3]) * taps * problem.x_shape[3]


class Matmul(Solver):
    """Solves everything; its memory is the image's size times the number of taps."""

    name = "matmul"
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns True."""
        return True

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the patches."""
        return patch_bytes(problem)


PART = Matmul()
