"""Chips of targets: the box cut out of a frame, padded to a square and resized."""

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.sources.dsiac.boxes import Box
from jaxatr.typing import Shaped


def cut(
    frame: Shaped[np.ndarray, "rows columns"], box: Box, size: int
) -> Shaped[np.ndarray, "y x 1"]:
    """Cuts a target out of a frame (paper, section 3.1).

    The box's shorter side is padded with zeros, so that the resize keeps the target's aspect ratio.
    8-bit pixels stay uint8, 16-bit pixels stay uint16 over their full range, and all others become
    float32.

    Args:
      frame: the frame, in any byte order.
      box: the target's box, within the frame.
      size: side of the chip in pixels; 0 keeps the box's size without padding.

    Raises:
      ValueError: a pixel is not a finite number, or too large for float32.
    """
    pixels = frame[box.y0 : box.y1, box.x0 : box.x1, None]
    with np.errstate(over="ignore"):  # checked below
        image = pixels.astype(image_dtype(frame.dtype))
        image = Chip(square=True, size=size)(image) if size else image
    if not np.isfinite(image).all():
        raise ValueError("a pixel that is not finite in float32")
    return image


def image_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype of chips cut from frames of a dtype."""
    return np.dtype({"u1": "u1", "u2": "u2"}.get(np.dtype(dtype).str[1:], "f4"))
