"""The description of a convolution problem, usable as a dictionary key."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import jax.numpy as jnp

from jaxatr.kernels.ops.windows import Pair, Shape

Direction: TypeAlias = Literal["forward", "data", "weight"]


@dataclasses.dataclass(frozen=True)
class ConvProblem:
    """One direction of one convolution: everything that a choice of algorithm may depend on.

    A convolution is a bilinear map of an image ``x`` and a kernel ``w`` to a result ``y``. Its two
    gradients are bilinear too, and each of the three is a gradient of the other two:

    =========  ================  ==========
    direction  takes             gives
    =========  ================  ==========
    forward    ``x``, ``w``      ``y``
    data       ``y``, ``w``      ``x``
    weight     ``x``, ``y``      ``w``
    =========  ================  ==========

    A sequence is an image of one row. A transposed convolution is the ``data`` direction of the
    convolution that maps its result back to its input. The only layout is NHWC.

    Attributes:
      direction: ``"forward"``, ``"data"`` or ``"weight"``.
      x_shape: ``(batch, height, width, channels)``.
      w_shape: ``(kernel height, kernel width, channels / groups, features)``.
      stride: rows and columns between neighbouring results.
      padding: ``((top, bottom), (left, right))`` zeros around the image.
      dilation: rows and columns between neighbouring taps of the kernel.
      groups: number of independent groups that channels and features are divided into.
      dtype: name of the element type of both arguments.
    """

    direction: Direction
    x_shape: Shape
    w_shape: Shape
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    groups: int
    dtype: str

    def __post_init__(self) -> None:
        """Raises a ``ValueError`` if the direction is unknown."""
        if self.direction not in get_args(Direction):
            raise ValueError(f"direction: got {self.direction!r}, wanted forward, data or weight")

    @property
    def batch_divisors(self) -> list[int]:
        """The divisors of the batch; none if the batch is a symbolic dimension of jax.export."""
        batch = self.x_shape[0]
        fixed = isinstance(batch, int)
        return [count for count in range(1, batch + 1) if batch % count == 0] if fixed else []

    @property
    def y_shape(self) -> Shape:
        """``(batch, result height, result width, features)``."""
        height, width = (
            (size + sum(pad) - (taps - 1) * dilation - 1) // stride + 1
            for size, taps, stride, pad, dilation in zip(
                self.x_shape[1:3],
                self.w_shape[:2],
                self.stride,
                self.padding,
                self.dilation,
                strict=True,
            )
        )
        return (self.x_shape[0], height, width, self.w_shape[3])

    @property
    def key(self) -> str:
        """One line of text that identifies the problem in databases and records."""
        edges = ".".join(str(edge) for pad in self.padding for edge in pad)
        return (
            f"convolution {self.direction} {_times(self.x_shape)} {_times(self.w_shape)} "
            f"s{_times(self.stride)} p{edges} d{_times(self.dilation)} g{self.groups} {self.dtype}"
        )

    @property
    def result_dtype(self) -> str:
        """Name of the result's element type; ``int8`` products are summed in ``int32``."""
        return "int32" if self.dtype == "int8" else self.dtype

    @property
    def floating(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return jnp.issubdtype(self.dtype, jnp.floating)

    def bytes(self, shape: Iterable[int]) -> int:
        """Returns the size in bytes of an array of the problem's element type."""
        return math.prod(shape) * jnp.dtype(self.dtype).itemsize

    @property
    def argument_shapes(self) -> tuple[Shape, Shape]:
        """Shapes of the two arguments of this direction."""
        return {
            "forward": (self.x_shape, self.w_shape),
            "data": (self.y_shape, self.w_shape),
            "weight": (self.x_shape, self.y_shape),
        }[self.direction]

    @property
    def result_shape(self) -> Shape:
        """Shape of the result of this direction."""
        return {"forward": self.y_shape, "data": self.x_shape, "weight": self.w_shape}[
            self.direction
        ]

    def in_direction(self, direction: Direction) -> "ConvProblem":
        """Returns another direction of the same convolution."""
        return dataclasses.replace(self, direction=direction)


def _times(numbers: Shape) -> str:
    return "x".join(map(str, numbers))
