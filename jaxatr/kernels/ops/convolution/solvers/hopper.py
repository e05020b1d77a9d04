"""Implicit GEMM on Hopper GPUs, by the Pallas kernel without an epilogue.

It computes the forward and the data direction of any stride, without copies of images or kernel.
"""

from functools import partial
from typing import Any

from jaxatr.kernels.device import Device
from jaxatr.kernels.ops.convolution.problem import Problem
from jaxatr.kernels.pallas import kernel, runs_on
from jaxatr.kernels.pallas.epilogue import Epilogue
from jaxatr.kernels.pallas.windows import Windows
from jaxatr.kernels.solver import Config, Solver
from jaxatr.typing import Array


def run(problem: Problem, config: Config, a: Array, b: Array, **options: Any) -> Array:
    """Computes the forward or data direction.

    Args:
      problem: a problem that :func:`fits`.
      config: the size of a tile, or nothing for the default.
      a: the direction's first argument.
      b: the kernel.
      **options: passed on to the Pallas kernel.
    """
    module = kernel("hopper", "convolution")
    tile = module.Tile(**dict(config)) if config else None
    return module.convolution(a, b, windows_of(problem), Epilogue(), tile=tile, **options)


def is_plain(problem: Problem) -> bool:
    """Returns whether the kernel supports the direction and the geometry.

    It supports the forward and data directions of one group without dilation or cropping.
    """
    plain = problem.groups == 1 and problem.dilation == (1, 1) and problem.direction != "weight"
    return plain and min(edge for pad in problem.padding for edge in pad) >= 0


def fits(problem: Problem) -> bool:
    """Returns whether a problem is plain (:func:`is_plain`) and the kernel supports its sizes."""
    if not is_plain(problem):
        return False
    module = kernel("hopper", "convolution")
    return module.applies(windows_of(problem), *_widths(problem), problem.dtype)


def windows_of(problem: Problem) -> Windows:
    """Returns the windows of a forward or data direction."""
    (batch, *x, _), (_, *y, _) = problem.x_shape, problem.y_shape
    gradient = problem.direction == "data"
    image, result = (y, x) if gradient else (x, y)
    before = problem.padding[0][0], problem.padding[1][0]
    taps = problem.w_shape[:2]
    return Windows(batch, tuple(image), tuple(result), taps, problem.stride, before, gradient)


def _widths(problem: Problem) -> tuple[int, int]:
    """Returns the number of channels that are read and of those that are written."""
    channels, features = problem.w_shape[2:]
    return (features, channels) if problem.direction == "data" else (channels, features)


class Hopper(Solver):
    """Solves forward and data directions on Hopper GPUs."""

    name = "hopper"
    version = 3  # images are read as they are, by a persistent grid

    def applies(self, problem: Problem, device: Device) -> bool:
        """Returns whether the device is a Hopper GPU and the problem :func:`fits`."""
        return runs_on("hopper", device) and fits(problem)

    def workspace_bytes(self, problem: Problem) -> int:
        """Returns the size of padded images and results if the batch is no multiple of 8."""
        missing = kernel("hopper", "convolution").missing(windows_of(problem))
        if not missing:
            return 0
        shapes = problem.argument_shapes[0], problem.result_shape
        return sum(map(problem.bytes, shapes))

    def configs(self, problem: Problem) -> list[Config]:
        """Returns the sizes of a tile."""
        tiles = kernel("hopper", "convolution").tiles(windows_of(problem), _widths(problem)[1])
        return [(("columns", tile.columns), ("rows", tile.rows)) for tile in tiles]

    def build(self, problem: Problem, config: Config):
        """Returns :func:`run` for the problem and the configuration."""
        return partial(run, problem, config)


SOLVERS = (Hopper(),)
