"""Implicit GEMM on Hopper GPUs, by the Pallas kernels without an epilogue.

They compute all directions of any stride. Images and kernel are copied only in the cases that
:meth:`Hopper.workspace_bytes` lists.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.tolerance import full_precision
from jaxatr.kernels.pallas import kernel, runs_on
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.windows import Windows
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array


def run(problem: ConvProblem, config: Config, a: Array, b: Array, **options: Any) -> Array:
    """Computes a direction.

    Args:
      problem: a problem that :func:`fits`.
      config: the size of a tile, or nothing for the default.
      a: the direction's first argument.
      b: the direction's second argument.
      **options: passed on to the Pallas kernel.
    """
    module, windows = _module(problem), windows_of(problem)
    options["tile"] = module.Tile(**dict(config)) if config else None
    if problem.direction == "weight":
        return module.weight_gradient(a, b, windows, **options)
    return module.convolution(a, b, windows, Epilogue(), **options)


def is_plain(problem: ConvProblem) -> bool:
    """Returns whether the kernels support the geometry: one group, no dilation, no cropping."""
    plain = problem.groups == 1 and problem.dilation == (1, 1)
    return plain and min(edge for pad in problem.padding for edge in pad) >= 0


def fits(problem: ConvProblem) -> bool:
    """Returns whether a problem is plain (:func:`is_plain`) and its kernel supports its sizes.

    It computes float32 in TF32, which jax's ``default_matmul_precision`` can forbid.
    """
    if not is_plain(problem) or (problem.dtype == "float32" and full_precision()):
        return False
    return _module(problem).applies(windows_of(problem), *_widths(problem), problem.dtype)


def windows_of(problem: ConvProblem) -> Windows:
    """Returns the windows of a direction; those of the weight gradient are the forward ones."""
    (batch, *x, _), (_, *y, _) = problem.x_shape, problem.y_shape
    gradient = problem.direction == "data"
    image, result = (y, x) if gradient else (x, y)
    before = problem.padding[0][0], problem.padding[1][0]
    taps = problem.w_shape[:2]
    return Windows(batch, tuple(image), tuple(result), taps, problem.stride, before, gradient)


def _widths(problem: ConvProblem) -> tuple[int, int]:
    """Returns the number of channels of the windows' image and of their result."""
    channels, features = problem.w_shape[2:]
    return (features, channels) if problem.direction == "data" else (channels, features)


def _module(problem: ConvProblem) -> Any:
    """Returns the module of the kernel for a direction."""
    return kernel("hopper", "weight" if problem.direction == "weight" else "convolution")


def _tiles(problem: ConvProblem) -> Sequence[Any]:
    """Returns the sizes of a tile, with the default first."""
    channels, features = _widths(problem)
    weight = problem.direction == "weight"
    sizes = (channels, features) if weight else (features, problem.dtype)
    return _module(problem).tiles(windows_of(problem), *sizes)


class Hopper(Solver):
    """Solves all directions on Hopper GPUs."""

    name = "hopper"
    version = 3  # images are read as they are, by a persistent grid

    def applies(self, problem: ConvProblem, device: Device) -> bool:
        """Returns whether the device is a Hopper GPU and the problem :func:`fits`."""
        return runs_on("hopper", device) and fits(problem)

    def workspace_bytes(self, problem: ConvProblem) -> int:
        """Returns the size of padded arrays, a transposed kernel and a gradient's partial sums.

        Images and results are padded if the batch is not a multiple of 8. The kernel of a forward
        problem in float32 is transposed.
        """
        pieces = _tiles(problem)[0].pieces if problem.direction == "weight" else 1
        turned = problem.dtype == "float32" and problem.direction == "forward"
        needed = 4 * pieces * math.prod(problem.w_shape) if pieces > 1 or turned else 0
        if kernel("hopper", "convolution").missing(windows_of(problem)):
            needed += problem.bytes(problem.x_shape) + problem.bytes(problem.y_shape)
        return needed

    def configs(self, problem: ConvProblem) -> list[Config]:
        """Returns the sizes of a tile."""
        return [tuple(sorted(dataclasses.asdict(tile).items())) for tile in _tiles(problem)]

    def build(self, problem: ConvProblem, config: Config):
        """Returns :func:`run` for the problem and the configuration."""
        return partial(run, problem, config)


PART = Hopper()
