"""The header of an image file, read before the pixels are decoded, and the limits on it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MOST_PIXELS = 178_956_970
"""Largest number of pixels of an image, as in Pillow: 0.5 GB as 8-bit colour."""

MOST_BANDS = 16
"""Largest number of bands of an image."""

MOST_PASSES = 32
"""Largest number of passes over an image: encoders write a progressive JPEG in about ten scans."""

MOST_PARTS = 1 << 16
"""Largest number of segments of a JPEG, strips or tiles of a TIFF and blocks of a GIF; of a PNG,
twice as many chunks. Each takes time of its own, however small it is."""

MOST_WORK = 12
"""Largest number of pixels that decoding visits, as a multiple of the largest number of pixels."""


class ImageError(ValueError):
    """An image file cannot be used; the message names the file and the reason."""


class Header(NamedTuple):
    """The header of an image file.

    Attributes:
      height: number of rows.
      width: number of columns.
      read: decodes the pixels, ``[h, w]`` or ``[h, w, c]``; takes memory and time only in
        proportion to ``height * width * passes``.
      passes: how often decoding visits each pixel.
      bands: number of bands; up to three take no more memory than colours.
    """

    height: int
    width: int
    read: Callable[[], np.ndarray]
    passes: int = 1
    bands: int = 1

    @property
    def work(self) -> int:
        """Number of pixels that decoding visits."""
        return self.height * self.width * self.passes

    def check(self, most: int) -> None:
        """Checks the limits.

        Args:
          most: largest number of pixels.

        Raises:
          ImageError: the image has more pixels, bands or passes, or too many of two together.
        """
        if self.bands > MOST_BANDS:
            raise too_many_bands(self.bands)
        if self.height * self.width > most:
            raise ImageError(f"{self.height}x{self.width} pixels, wanted at most {most} pixels")
        if self.height * self.width * self.bands > 3 * most:
            raise ImageError(
                f"{self.height}x{self.width} pixels of {self.bands} bands, wanted at most "
                f"{3 * most // self.bands} pixels"
            )
        if self.passes > MOST_PASSES:
            raise ImageError(
                f"{self.passes} passes over the image (scans of a progressive JPEG), wanted at "
                f"most {MOST_PASSES}: save it with fewer"
            )
        if self.work > MOST_WORK * most:
            raise ImageError(
                f"{self.height}x{self.width} pixels in {self.passes} passes (scans of a "
                f"progressive JPEG), wanted at most {MOST_WORK * most // self.passes} pixels"
            )


def check_parts(count: int, what: str, most: int = MOST_PARTS) -> None:
    """Checks the number of parts of a file.

    Raises:
      ImageError: there are too many.
    """
    if count > most:
        raise ImageError(f"more than {most} {what}: save it with larger or fewer ones")


def too_many_bands(count: int) -> ImageError:
    """Creates the error for an image of too many bands."""
    return ImageError(f"got {count} bands, wanted 1 to {MOST_BANDS}")


def too_wide(kind: str) -> ImageError:
    """Creates the error for a format's colours of more than 8 bits."""
    return ImageError(
        f"a {kind} with several channels of more than 8 bits, of which Pillow keeps only the "
        "upper 8; save it as a TIFF or .npy, or as 8-bit colour"
    )
