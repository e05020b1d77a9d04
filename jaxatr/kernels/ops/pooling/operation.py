"""Pooling as an operation of the find step, with a float64 reference in NumPy."""

from typing import get_args

import numpy as np

from jaxatr.kernels.ops.differentiable import Form, draw, operation, wide
from jaxatr.kernels.ops.pooling.forms import taps, xla
from jaxatr.kernels.ops.pooling.problem import Mode, PoolingProblem
from jaxatr.kernels.options import IMAGES, Command, Option
from jaxatr.kernels.solver import register


def arguments(problem: PoolingProblem, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Returns random images, and the cotangent of the backward direction."""
    shapes = [problem.x_shape]
    if problem.direction == "backward":
        shapes.append(problem.y_shape)
    return tuple(draw(generator, problem.dtype, *shapes))


def reference(problem: PoolingProblem, given: tuple[np.ndarray, ...]) -> np.ndarray | tuple:
    """Returns the pooled images, or the gradient of the images."""
    x, *cotangent = wide(*given)
    edges = ((0, 0), *problem.padding, (0, 0))
    fill = -np.inf if problem.mode == "max" else 0.0
    padded, inside = np.pad(x, edges, constant_values=fill), np.pad(np.ones_like(x), edges)
    slices = _slices(problem)
    values = np.stack([padded[part] for part in slices])
    count = np.stack([inside[part] for part in slices]).sum(0)
    if problem.mode == "average_inclusive":
        count = np.full(problem.y_shape, float(len(slices)))
    if problem.direction == "forward":
        return values.max(0) if problem.mode == "max" else values.sum(0) / count
    (dy,), gradient, first = cotangent, np.zeros_like(padded), values.argmax(0)
    for index, part in enumerate(slices):
        gradient[part] += dy * (first == index) if problem.mode == "max" else dy / count
    (top, _), (left, _) = problem.padding
    return (gradient[:, top : top + x.shape[1], left : left + x.shape[2]],)


def _slices(problem: PoolingProblem) -> list[tuple[slice, ...]]:
    """Returns the slice of the padded image that each tap of the window meets, in row order."""
    starts = [(i, j) for i in range(problem.window[0]) for j in range(problem.window[1])]
    sides = list(zip(problem.y_shape[1:3], problem.stride, strict=True))
    return [
        (
            slice(None),
            *(
                slice(start, start + (count - 1) * step + 1, step)
                for start, (count, step) in zip(first, sides, strict=True)
            ),
        )
        for first in starts
    ]


def _from_options(direction, dtype, *, n, c, H, W, y, x, u, v, p, q, mode) -> PoolingProblem:
    if p >= y or q >= x:
        raise ValueError(f"-p and -q: got {p} and {q}, wanted less than -y {y} and -x {x}")
    problem = PoolingProblem(direction, mode, (n, H, W, c), (y, x), (u, v), ((p, p), (q, q)), dtype)
    if min(problem.y_shape[1:3]) < 1:
        raise ValueError(f"-H and -W: got {H} and {W}, smaller than the window")
    return problem


COMMAND = Command(
    "pool",
    "Measures a max or average pooling.",
    _from_options,
    {
        **IMAGES,
        "y": Option(2, "rows of a window", 1),
        "x": Option(2, "columns of a window", 1),
        "u": Option(2, "stride, rows", 1),
        "v": Option(2, "stride, columns", 1),
        "p": Option(0, "padding, rows", 0),
        "q": Option(0, "padding, columns", 0),
        "mode": Option(
            "max",
            "The reduction over a window; average_inclusive also counts the padding.",
            choices=get_args(Mode),
        ),
    },
)
OPERATION = operation(
    "pooling", (Form("taps", taps), Form("xla", xla)), arguments, reference, COMMAND
)
register(PoolingProblem, OPERATION)
