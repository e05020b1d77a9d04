"""The description of a pooling problem, usable as a dictionary key."""

import dataclasses
from typing import Literal, TypeAlias

from jaxatr.kernels.ops.differentiable import Direction
from jaxatr.kernels.ops.windows import Pair, Shape

Mode: TypeAlias = Literal["max", "average", "average_inclusive"]


@dataclasses.dataclass(frozen=True)
class PoolingProblem:
    """One direction of a pooling.

    Attributes:
      direction: ``"forward"``, or ``"backward"``: the gradient of ``x``, including the
        forward pass.
      mode: ``"max"``, ``"average"`` over the pixels inside the image, or ``"average_inclusive"``,
        which counts the padding as zeros.
      x_shape: ``(batch, height, width, channels)``.
      window: rows and columns of the window.
      stride: rows and columns between neighbouring windows.
      padding: ``((top, bottom), (left, right))`` pixels around the image.
      dtype: name of the element type.
    """

    direction: Direction
    mode: Mode
    x_shape: Shape
    window: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dtype: str

    @property
    def y_shape(self) -> Shape:
        """``(batch, result height, result width, channels)``."""
        height, width = (
            (size + sum(pad) - taps) // stride + 1
            for size, taps, stride, pad in zip(
                self.x_shape[1:3], self.window, self.stride, self.padding, strict=True
            )
        )
        return (self.x_shape[0], height, width, self.x_shape[3])

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        shape, window, stride = (
            "x".join(map(str, numbers)) for numbers in (self.x_shape, self.window, self.stride)
        )
        edges = ".".join(str(edge) for pad in self.padding for edge in pad)
        return (
            f"pooling {self.direction} {self.mode} {shape} {window} s{stride} p{edges} {self.dtype}"
        )
