"""The windows of a convolution: which pixel of the image meets which tap for which result."""

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Pair: TypeAlias = tuple[int, int]
Place: TypeAlias = tuple[Any, Any]  # a row and a column, which a kernel computes


@dataclasses.dataclass(frozen=True)
class Windows:
    """The geometry of a convolution of any stride, or of its data gradient.

    The result at pixel ``o`` meets the image at pixel ``o * stride - before + tap``. With
    ``gradient``, image and result are exchanged: the result at ``o`` meets the image at the pixels
    ``i`` for which ``i * stride - before + tap == o``. So the pixels of the result form ``stride``
    phases in each direction, and those of one phase meet the same taps.

    Attributes:
      batch: number of images.
      image: rows and columns of the image that is read.
      result: rows and columns of the result.
      taps: rows and columns of the kernel.
      stride: rows and columns between neighbouring results of the convolution.
      before: rows of zeros above the convolution's image, and columns to its left.
      gradient: whether this is the data gradient.
    """

    batch: int
    image: Pair
    result: Pair
    taps: Pair
    stride: Pair = (1, 1)
    before: Pair = (0, 0)
    gradient: bool = False

    @property
    def pixels(self) -> int:
        """Number of pixels of the image."""
        return self.image[0] * self.image[1]

    @property
    def pointwise(self) -> bool:
        """Whether each result depends on the one pixel at the same place."""
        plain = self.taps == self.stride == (1, 1) and self.before == (0, 0)
        return plain and self.image == self.result

    @property
    def apart(self) -> Pair:
        """Rows and columns between neighbouring results of a phase."""
        return self.stride if self.gradient else (1, 1)

    @property
    def phase(self) -> Pair:
        """Rows and columns of results of a phase."""
        rows, columns = (-(-n // s) for n, s in zip(self.result, self.apart, strict=True))
        return rows, columns

    def taps_of(self, phase: Place) -> tuple[Place, Place]:
        """Returns the first tap of a phase and the number of its taps, for rows and columns."""
        if not self.gradient or self.stride == (1, 1):
            return (0, 0), self.taps

        def along(axis: int) -> tuple[Any, Any]:
            step = jnp.int32(self.stride[axis])
            first = jax.lax.rem(phase[axis] + jnp.int32(self.before[axis]), step)
            return first, jax.lax.div(self.taps[axis] - first + step - 1, step)

        (top, rows), (left, columns) = along(0), along(1)
        return (top, left), (rows, columns)

    def number(self, first: Place, tap: Place) -> Any:
        """Returns the number of a phase's tap among all taps of the kernel, row by row."""
        i, j = (f + t * s for f, t, s in zip(first, tap, self.apart, strict=True))
        return i * self.taps[1] + j

    def source(self, pixel: Place, first: Place, tap: Place) -> Place:
        """Returns the pixel of the image that a result meets at a tap of its phase.

        If that pixel is outside the image, the row and the column after the last are returned.
        """

        def along(axis: int) -> Any:
            before, step = self.before[axis], self.stride[axis]
            if not self.gradient:
                return pixel[axis] * step - before + tap[axis]
            return jax.lax.div(pixel[axis] + before - first[axis], jnp.int32(step)) - tap[axis]

        (y, x), (rows, columns) = (along(0), along(1)), self.image
        within = (y >= 0) & (y < rows) & (x >= 0) & (x < columns)
        return jnp.where(within, y, rows), jnp.where(within, x, columns)
