"""Chips of a frame: the target, squared and brought to one size."""

import numpy as np

from jaxatr.data.chip import Chip
from jaxatr.data.sources.dsiac.boxes import Box
from jaxatr.typing import Shaped


def cut(
    frame: Shaped[np.ndarray, "rows columns"], box: Box, size: int
) -> Shaped[np.ndarray, "y x 1"]:
    """Returns the target of a frame (paper, section 3.1).

    The box is cut out, its shorter side padded with zeros, so that the resize keeps the target's
    proportions, and the square resized. Eight bits stay uint8, sixteen stay uint16 over their full
    range, and all others become float32.

    Args:
      frame: in any byte order.
      box: inside of the frame.
      size: side in pixels; 0 leaves the box as it is.

    Raises:
      ValueError: a pixel is not a finite number, or too large for float32.
    """
    pixels = frame[box.y0 : box.y1, box.x0 : box.x1, None]
    with np.errstate(over="ignore"):  # told below
        image = pixels.astype(image_dtype(frame.dtype))
        image = Chip(square=True, size=size)(image) if size else image
    if not np.isfinite(image).all():
        raise ValueError("a pixel that is no finite number of float32")
    return image


def image_dtype(dtype: np.dtype) -> np.dtype:
    """Returns the dtype of the chips that are cut from frames of a dtype."""
    return np.dtype({"u1": "u1", "u2": "u2"}.get(np.dtype(dtype).str[1:], "f4"))
