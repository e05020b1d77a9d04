"""The windows of a convolution: which pixel of the image meets which tap for which result."""

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Pair: TypeAlias = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Windows:
    """The geometry of a convolution of any stride, or of its data gradient.

    The result at pixel ``o`` meets the image at pixel ``o * stride - before + tap``. With
    ``gradient``, image and result are exchanged: it meets those pixels ``i`` with
    ``i * stride - before + tap == o``. So the pixels of the result form ``stride`` phases in each
    direction, and those of one phase meet the same taps.

    Attributes:
      batch: number of images.
      image: rows and columns of the image that is read.
      result: rows and columns of the result.
      taps: rows and columns of the kernel.
      stride: of the convolution.
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

    def taps_of(self, phase: tuple[Any, Any]) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Returns the first tap of a phase and the number of its taps, for rows and columns."""
        if not self.gradient or self.stride == (1, 1):
            return (0, 0), self.taps
        first = [jax.lax.rem(p + b, s) for p, b, s in self._zip(phase, self.before, self.stride)]
        counts = [
            jax.lax.div(t - f + s - 1, s) for t, f, s in self._zip(self.taps, first, self.stride)
        ]
        return tuple(first), tuple(counts)

    def number(self, first: tuple[Any, Any], tap: tuple[Any, Any]) -> Any:
        """Returns the number of a phase's tap among all taps of the kernel, row by row."""
        i, j = (f + t * s for f, t, s in self._zip(first, tap, self.apart))
        return i * self.taps[1] + j

    def source(self, pixel: tuple[Any, Any], first: tuple[Any, Any], tap: tuple[Any, Any]) -> Any:
        """Returns the pixel of the image that a result meets at a tap of its phase.

        For a pixel beyond the image, it is that one row and one column after the last.
        """
        if self.gradient:
            place = [
                jax.lax.div(o + b - f, jnp.int32(s)) - t
                for o, b, f, t, s in zip(pixel, self.before, first, tap, self.stride, strict=True)
            ]
        else:
            place = [
                o * s - b + t
                for o, s, b, t in zip(pixel, self.stride, self.before, tap, strict=True)
            ]
        within = [(p >= 0) & (p < n) for p, n in zip(place, self.image, strict=True)]
        return tuple(
            jnp.where(within[0] & within[1], p, n) for p, n in zip(place, self.image, strict=True)
        )

    @staticmethod
    def _zip(*pairs: Any) -> Any:
        return zip(*(map(jnp.int32, pair) for pair in pairs), strict=True)
