"""The gradients of a strided convolution of few channels, by space to depth.

The pixels that a stride skips become channels, and the kernel is rearranged to match, padded with
zeros to a multiple of the stride: a 7x7 kernel of stride 2 on three channels becomes a 4x4 kernel
of stride 1 on twelve. That is a third more products, but the convolution has no stride and four
times as many contiguous channels.

The data gradient of the folded problem is written as a convolution with the kernel rotated by 180
degrees, because XLA:CPU is slow at the gradient that jax derives if the kernel is folded in the
same program.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.padding import pad
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Pair
from jaxatr.kernels.ops.convolution.solvers import taps, turned
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array

# The most channels after folding; with more, the original problem has enough.
_CHANNELS = {"data": 128, "weight": 32}
_FEW = 32
_TAPS = 32  # the most taps of the folded kernel


def _as_convolution(problem: ConvProblem, y: Array, w: Array) -> Array:
    """Returns the data gradient of a problem of stride 1 without padding."""
    around = [(count - 1, count - 1) for count in w.shape[:2]]
    rotated = w[::-1, ::-1].transpose(0, 1, 3, 2)
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(y, rotated, (1, 1), around, dimension_numbers=layout)


# For each direction, the algorithms for the folded problem. The first is usually the fastest on few
# channels.
_INNER: Mapping[str, Mapping[str, Callable[[ConvProblem, Array, Array], Array]]] = {
    "data": {"taps": taps.run, "convolution": _as_convolution},
    "weight": {"turned": partial(turned.run, "x"), "taps": taps.run},
}


def folded(problem: ConvProblem) -> ConvProblem:
    """Returns the folded problem, of stride 1 without padding: its images include the padding."""
    (batch, *_, channels), steps = problem.x_shape, problem.stride
    window = [-(-count // step) for count, step in zip(problem.w_shape[:2], steps, strict=True)]
    sides = [n - 1 + count for n, count in zip(problem.y_shape[1:3], window, strict=True)]
    depth = channels * math.prod(steps)
    return dataclasses.replace(
        problem,
        x_shape=(batch, *sides, depth),
        w_shape=(*window, depth, problem.w_shape[3]),
        stride=(1, 1),
        padding=((0, 0), (0, 0)),
    )


def run(inner: str, problem: ConvProblem, a: Array, b: Array) -> Array:
    """Computes a gradient by the algorithm ``inner`` on the folded problem."""
    other, compute = folded(problem), _INNER[problem.direction][inner]
    if problem.direction == "weight":
        return _kernel_unfolded(problem, compute(other, _image_folded(problem, other, a), b))
    return _image_unfolded(problem, other, compute(other, a, _kernel_folded(problem, other, b)))


def _edges(problem: ConvProblem, other: ConvProblem) -> tuple[Pair, Pair]:
    """Returns the padding that brings the images to the folded size; negative numbers crop."""
    (top, _), (left, _) = problem.padding
    height, width = (other.x_shape[1 + axis] * problem.stride[axis] for axis in (0, 1))
    rows, columns = problem.x_shape[1:3]
    return (top, height - rows - top), (left, width - columns - left)


def _image_folded(problem: ConvProblem, other: ConvProblem, x: Array) -> Array:
    x = pad(x, *_edges(problem, other))
    _, height, width, _ = other.x_shape
    (sy, sx), channels = problem.stride, problem.x_shape[3]
    x = x.reshape(-1, height, sy, width, sx, channels).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, *other.x_shape[1:])


def _image_unfolded(problem: ConvProblem, other: ConvProblem, x: Array) -> Array:
    _, height, width, _ = other.x_shape
    (sy, sx), channels = problem.stride, problem.x_shape[3]
    x = x.reshape(-1, height, width, sy, sx, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(-1, height * sy, width * sx, channels)
    rows, columns = [(-before, -after) for before, after in _edges(problem, other)]
    return pad(x, rows, columns)


def _kernel_folded(problem: ConvProblem, other: ConvProblem, w: Array) -> Array:
    (rows, columns), (sy, sx) = other.w_shape[:2], problem.stride
    kh, kw, channels, features = problem.w_shape
    w = jnp.pad(w, ((0, rows * sy - kh), (0, columns * sx - kw), (0, 0), (0, 0)))
    w = w.reshape(rows, sy, columns, sx, channels, features).transpose(0, 2, 1, 3, 4, 5)
    return w.reshape(other.w_shape)


def _kernel_unfolded(problem: ConvProblem, w: Array) -> Array:
    (rows, columns, _, features), (sy, sx) = w.shape, problem.stride
    kh, kw, channels, _ = problem.w_shape
    w = w.reshape(rows, columns, sy, sx, channels, features).transpose(0, 2, 1, 3, 4, 5)
    return w.reshape(rows * sy, columns * sx, channels, features)[:kh, :kw]


def applies(problem: ConvProblem) -> bool:
    """Returns whether a gradient has a stride to fold, few channels and one group."""
    if problem.direction not in _INNER or not problem.floating:
        return False
    if problem.groups != 1 or problem.dilation != (1, 1):
        return False
    steps = [s for s, k in zip(problem.stride, problem.w_shape[:2], strict=True) if k > 1]
    channels = problem.x_shape[3] * math.prod(problem.stride)
    return (
        max(steps, default=1) > 1
        and channels <= _CHANNELS[problem.direction]
        and math.prod(folded(problem).w_shape[:2]) <= _TAPS
    )


class SpaceToDepth(Solver):
    """Solves gradients of strided first layers on CPU; tuned by the inner algorithm."""

    name = "space_to_depth"
    version = 3  # raised with the version of `turned`
    run = staticmethod(run)

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the device is a CPU and the problem has a stride to fold."""
        return device.platform == "cpu" and applies(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of the folded images and, for a weight gradient, of their patches."""
        other = folded(problem)
        patches = problem.direction == "weight"
        return problem.bytes(other.x_shape) * (1 + math.prod(other.w_shape[:2]) * patches)

    def configs(self, problem: ConvProblem) -> Sequence[Config]:
        """Returns the algorithms for the folded problem, the one that is usually fastest first."""
        names = list(_INNER[problem.direction])
        if problem.direction == "data" and folded(problem).x_shape[3] > _FEW:
            names.reverse()  # with so many channels, taps writes large intermediate products
        return [(("inner", name),) for name in names]


PART = SpaceToDepth()
