"""Decoding of untrusted images with a limit on their size.

A file of a few kilobytes may decompress to gigabytes. The header is therefore read first, by the
reader of its format only, and an image with too many pixels is refused. Formats that run another
program, refer to other files or decompress through a temporary file are not supported.
"""

import io
import math

import numpy as np
from PIL import Image

from jaxatr.data import measurements
from jaxatr.data.images import ImageError, decode_image, open_image
from jaxatr.typing import Shaped

FORMATS = ("PNG", "JPEG", "TIFF", "GIF", "BMP", "WEBP", "JPEG2000")
"""Pillow's names of the accepted formats; ``.npy`` files and MSTAR's raw chips are accepted too."""


def pixels_of(content: bytes, name: str, *, most: int) -> int:
    """Returns the number of pixels stated in an image's header, after checking it.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: the largest accepted number of pixels.

    Raises:
      ImageError: there are more pixels, or the format is not supported.
    """
    try:
        height, width = _stated(content)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # a forged header can raise anything
        raise ImageError(f"{name}: not a readable image ({type(error).__name__})") from error
    if height * width > most:
        raise ImageError(f"{name}: {height}x{width} pixels, wanted at most {most} pixels")
    return height * width


def decode_bounded(content: bytes, name: str, *, most: int) -> Shaped[np.ndarray, "h w c"]:
    """Decodes an image as :func:`jaxatr.data.read_image` does, with a limit on its size.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: the largest accepted number of pixels.

    Raises:
      ImageError: there are too many pixels, the format is not supported, or the file is damaged.
    """
    pixels_of(content, name, most=most)
    return decode_image(content, name)


def _stated(content: bytes) -> tuple[int, int]:
    if measurements.reader_of(content) is not None:
        try:
            return measurements.stated_size(content)
        except ValueError as error:
            raise ImageError(str(error)) from error
    try:
        with open_image(content, FORMATS) as image:
            return image.height, image.width
    except Image.DecompressionBombError as error:
        raise ImageError(f"{error}") from error
    except Exception:
        if not measurements.is_tiff(content):
            raise ImageError(
                f"not a readable image, wanted one of {', '.join(FORMATS)} or .npy"
            ) from None
    import tifffile  # slow to import

    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages.first
        if math.prod(page.shape) > 3 * page.imagelength * page.imagewidth:
            raise ImageError(
                f"got an array of shape {list(page.shape)}, wanted [h, w] or [h, w, 3]"
            )
        return page.imagelength, page.imagewidth
