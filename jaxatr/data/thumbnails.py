"""Chips made small, and fit for a screen."""

import numpy as np
from PIL import Image

from jaxatr.typing import Shaped, UInt8


def thumbnail(chip: Shaped[np.ndarray, "h w c"], *, side: int = 64) -> UInt8[np.ndarray, "y x d"]:
    """Returns a chip to look at: uint8, gray or RGB, no side longer than ``side`` pixels.

    Eight bits are kept as they are. Those of 16 bits and floats are spread from their own lowest
    to their own highest value, so that two such thumbnails do not compare in brightness. Of a chip
    that is neither gray nor RGB the first channel is shown. A small chip is not enlarged.

    Args:
      chip: ``[h, w, c]``.
      side: in pixels.

    >>> thumbnail(np.array([[[0], [500], [1000]]], np.uint16))[0, :, 0].tolist()
    [0, 128, 255]
    """
    pixels = chip if chip.shape[2] in (1, 3) else chip[:, :, :1]
    if pixels.dtype != np.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        span = high - low if high > low else 1.0
        spread = (pixels.astype(np.float64) - low) * (255 / span)
        pixels = np.rint(spread).astype(np.uint8)
    picture = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    picture.thumbnail((side, side))
    small = np.asarray(picture)
    return small[:, :, None] if small.ndim == 2 else small
