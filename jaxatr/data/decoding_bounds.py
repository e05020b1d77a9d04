"""Decoding of untrusted images with a limit on their size and on the work that they cause.

Formats that run another program, refer to other files or decompress through a temporary file are
not supported; :mod:`jaxatr.data.decoder` says how the others are bounded.
"""

import numpy as np

from jaxatr.data import decoder
from jaxatr.typing import Shaped


def pixels_of(content: bytes, name: str, *, most: int) -> int:
    """Returns the number of pixels that decoding an image will visit, after checking its header.

    This is the number of its pixels, times the number of passes over them: a progressive JPEG has
    several.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: the largest accepted number of pixels of the image.

    Raises:
      ImageError: there are more pixels or too many passes, or the format is not supported.
    """
    return decoder.header(content, name, most=most).work


def decode_bounded(content: bytes, name: str, *, most: int) -> Shaped[np.ndarray, "h w c"]:
    """Decodes an image as :func:`jaxatr.data.read_image` does, within the limits of this module.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: the largest accepted number of pixels.

    Raises:
      ImageError: a limit is exceeded, the format is not supported, or the file is damaged.
    """
    return decoder.decode(content, name, most=most)
