"""The heuristic that chooses a convolution algorithm on CPU.

The rules follow timings of the layers of residual networks on a machine with two cores, made by
``experiments/benchmarks/convolution.py`` and, for 1x1 kernels, weight gradients and first layers,
by ``experiments/benchmarks/kernels.py``. They are in ``experiments/benchmarks/results``.
"""

import math

from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import (
    blocked,
    direct,
    space_to_depth,
    split,
    taps,
    turned,
    winograd,
)

_FULL = ("float32", "float64")  # not half precision, which was not timed
_ROOM = 96 * 2**20  # the most bytes for the patches of one layer
_LAST_ROOM = 512 * 2**20  # those of a first layer, whose gradient is the last one to be computed
_LARGE = 2**28  # multiplications for each tap, at which a longer compilation soon pays off


def choose(problem: ConvProblem) -> str:
    """Returns the algorithm that is expected to be the fastest for a problem on CPU."""
    channels, features = problem.w_shape[2:]
    pixels = math.prod(problem.y_shape[1:3])
    if problem.groups > 1:
        return _grouped(problem)
    if not problem.floating:
        return "xla"
    if problem.w_shape[:2] == (1, 1):
        return _pointwise(problem, pixels)
    if _few(problem, pixels):
        return "taps"
    # With fewer channels, transforming the tiles costs more than it saves.
    if winograd.applies(problem) and min(channels, features) >= 32 and problem.dtype in _FULL:
        return _tile(problem)
    # XLA's convolution is slow on small images, its gradients by up to a hundred times.
    if channels > 4 and pixels <= (8 * 8 if problem.direction == "forward" else 4 * 4):
        return "matmul"
    if problem.direction == "weight":
        return _weight(problem)
    if channels > 4:
        return "xla"
    # The first layer: gathering patches of so few channels is slow.
    if problem.direction == "data":
        return "space_to_depth" if space_to_depth.applies(problem) else "xla"
    return "split" if 32 * 32 <= pixels <= 64 * 64 and split.applies(problem) else "xla"


def _pointwise(problem: ConvProblem, pixels: int) -> str:
    """Returns the algorithm of a 1x1 kernel, which is a single matrix product."""
    if problem.direction == "forward":
        return "matmul"
    channels, features = problem.w_shape[2:]
    narrower = problem.direction == "weight" and channels >= 2 * features
    if narrower and problem.stride == (1, 1) and _can_be_transposed(problem):
        return "turned" if problem.x_shape[0] * pixels >= 2 * channels else "taps"
    return "taps"


def _weight(problem: ConvProblem) -> str:
    """Returns the algorithm of a weight gradient with a larger kernel.

    XLA's takes several times as long for a first layer or with strides, most of all on processors
    without AVX-512.
    """
    if not _timed(problem):
        return "xla"
    channels, features = problem.w_shape[2:]
    first = channels <= 4
    if turned.workspace_bytes(problem) <= (_LAST_ROOM if first else _ROOM):
        return "turned"
    strided = max(problem.stride) > 1 and features >= 64
    return "blocked" if (first or strided) and blocked.PART.configs(problem) else "xla"


def _can_be_transposed(problem: ConvProblem) -> bool:
    """Returns whether a weight gradient has a type that was timed and its patches fit."""
    return _timed(problem) and turned.workspace_bytes(problem) <= _ROOM


def _timed(problem: ConvProblem) -> bool:
    """Returns whether a problem has a type that was timed and a batch of known size."""
    return isinstance(problem.x_shape[0], int) and problem.dtype in _FULL


def _few(problem: ConvProblem, pixels: int) -> bool:
    """Returns whether the image is so small that a product per tap is the fastest."""
    strided = problem.direction == "data" and max(problem.stride) > 1
    least, most = (1, 4 * 4) if strided else (2, 2 * 2)
    return taps.applies(problem) and least <= pixels <= most


def _tile(problem: ConvProblem) -> str:
    """Returns the Winograd solver with the faster tile size; the larger one compiles longer."""
    batch, sides = problem.x_shape[0], problem.y_shape[1:3]
    if problem.direction == "weight":
        return "winograd4" if math.prod(sides) >= 7 * 7 else "winograd"
    if math.prod(sides) >= 28 * 28 and all(side % 4 == 0 for side in sides):
        return "winograd4"
    if not isinstance(batch, int):  # of any size, in an exported program
        return "winograd"
    channels, features = problem.w_shape[2:]
    large = batch * math.prod(sides) * channels * features >= _LARGE
    # Its kernel has 36 planes instead of 16, which few tiles do not make up for.
    tiles = batch * math.prod(-(-side // 4) for side in sides)
    return "winograd4" if large and 4 * tiles >= max(channels, features) else "winograd"


def _grouped(problem: ConvProblem) -> str:
    if problem.w_shape[2] == 1 and direct.applies(problem):
        return "direct"
    if problem.direction == "weight":
        return "matmul"  # XLA's grouped weight gradient is up to a hundred times slower
    return "xla"
