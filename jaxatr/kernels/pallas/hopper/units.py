"""Units of a convolution's images: some images at one pixel, which TMA copies at once.

TMA reads them straight out of ``[b, h, w, c]`` and fills in zeros for a pixel beyond the image, so
that images need neither padding nor transposing, and every stride costs the same.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from jaxatr.kernels.pallas.windows import Place, Windows
from jaxatr.typing import Array, Float

LINE = 128  # bytes of a row of a buffer, the width of the swizzled layout
WIDTH = 64  # channels and features are multiples of it
UNIT = 8  # images are copied in multiples of the tensor cores' 8 rows
LARGEST = 2**31 - 1  # the largest coordinate of TMA
_UNROLLED = 4  # the most units that are copied without a loop over units
_WASTE = 1.1  # the most rows of a buffer, relative to those that hold an image


def applies(windows: Windows, channels: int, features: int, dtype: str) -> bool:
    """Returns whether the kernels support the sizes and the type."""
    batch = windows.batch
    if dtype not in ("bfloat16", "float16", "float32") or channels % WIDTH or features % WIDTH:
        return False
    if not isinstance(batch, int):  # a symbolic dimension of jax.export
        return False
    if not windows.pointwise and (batch < UNIT or windows.pixels == 1):
        return False
    counts = batch * windows.pixels, batch * math.prod(windows.result)
    return max(*counts, math.prod(windows.taps) * max(channels, features)) <= LARGEST // 2


def refusal(windows: Windows, channels: int, features: int, dtype: str) -> NotImplementedError:
    """Returns the error for sizes or a type that :func:`applies` rejects."""
    return NotImplementedError(
        f"got batch {windows.batch}, {channels} channels, {features} features, {dtype}; "
        f"wanted at least {UNIT} images (any number for 1x1 kernels of stride 1), multiples of "
        f"{WIDTH}, and bfloat16, float16 or, except for the weight gradient, float32"
    )


def missing(windows: Windows) -> int:
    """Returns the number of images by which the batch is padded; each pixel of 1x1 is an image."""
    images = windows.batch * windows.pixels if windows.pointwise else windows.batch
    return -images % UNIT


def viewed(windows: Windows) -> Windows:
    """Returns the windows that the kernels compute: padded, with pixels as images if pointwise."""
    more = missing(windows)
    if windows.pointwise:
        images = windows.batch * windows.pixels
        windows = dataclasses.replace(windows, batch=images, image=(1, 1), result=(1, 1))
    return dataclasses.replace(windows, batch=windows.batch + more)


def padded(images: Float[Array, "b h w c"], windows: Windows) -> Float[Array, "b2 h2 w2 c"]:
    """Returns images or results as in :func:`viewed`; copies them only to pad their number."""
    if windows.pointwise:
        images = images.reshape(-1, 1, 1, images.shape[3])
    if more := missing(windows):
        images = jnp.pad(images, ((0, more), (0, 0), (0, 0), (0, 0)))
    return images


def divided(a: Any, b: int) -> tuple[Any, Any]:
    """Returns the quotient and the remainder."""
    return jax.lax.div(a, jnp.int32(b)), jax.lax.rem(a, jnp.int32(b))


@dataclasses.dataclass(frozen=True)
class Units(abc.ABC):
    """The units of the results of a convolution, or of its data gradient.

    Units are numbered by pixel and then by image. With the data gradient of a stride, the pixels
    that meet the same taps are a phase, and each phase has its own numbers.

    Attributes:
      windows: the geometry, as :func:`viewed`.
    """

    windows: Windows

    @property
    @abc.abstractmethod
    def lines(self) -> int:
        """Rows of a buffer of units, each of which holds one image at one pixel."""

    @property
    def images(self) -> int:
        """Images of a unit: the largest number that leaves few rows of a buffer empty."""
        batch = self.windows.batch
        sizes = [UNIT << n for n in range(5) if UNIT << n <= self.lines]
        fit = (size for size in reversed(sizes) if -(-batch // size) * size <= _WASTE * batch)
        return next(fit, UNIT)

    @property
    def units(self) -> int:
        """Units of a buffer."""
        return self.lines // self.images

    @property
    def blocks(self) -> int:
        """Units per pixel."""
        return -(-self.windows.batch // self.images)

    def unit(self, phase: Place, index: Any) -> tuple[Any, Place, Any]:
        """Returns a unit's first image, its pixel, and whether the pixel is part of the result.

        Args:
          phase: the row and the column of the phase.
          index: number of the unit in its phase.
        """
        pixel, block = divided(index, self.blocks)
        row, column = divided(pixel, self.windows.phase[1])
        y = row * self.windows.apart[0] + phase[0]
        x = column * self.windows.apart[1] + phase[1]
        within = (y < self.windows.result[0]) & (x < self.windows.result[1])
        return block * self.images, (y, x), within

    def each_unit(self, units: int, work: Callable[[Any, Any], None]) -> None:
        """Calls ``work(number, rows of a buffer)`` for each unit, in a loop if there are many."""

        def one(number: Any, _: None) -> None:
            work(number, pl.ds(pl.multiple_of(number * self.images, UNIT), self.images))

        if units > _UNROLLED:  # otherwise their coordinates would not fit in registers
            jax.lax.fori_loop(0, units, one, None)
            return
        for number in range(units):
            work(number, pl.ds(number * self.images, self.images))
