"""Images from bytes that nobody vouches for: their size is known before anything is unpacked.

A file of a few kilobytes may unpack to gigabytes. Here the header is read first, by the reader of
its format and no other, and an image of too many pixels is refused. Formats that run another
program, refer to other files or unpack through a temporary file are not read at all.
"""

import io
import math

import numpy as np
import tifffile
from PIL import Image

from jaxatr.data import measurements
from jaxatr.data.images import ImageError, decode_image, open_image
from jaxatr.typing import Shaped

FORMATS = ("PNG", "JPEG", "TIFF", "GIF", "BMP", "WEBP", "JPEG2000")
"""Names of Pillow's formats that are read; those of NumPy and MSTAR's raw chips come besides."""


def pixels_of(content: bytes, name: str, *, most: int) -> int:
    """Returns the number of pixels that an image's header states, and checks it.

    Args:
      content: of the file.
      name: for the error message.
      most: pixels that are accepted.

    Raises:
      ImageError: there are more, or the format is none that is read here; the message says which.
    """
    try:
        height, width = _stated(content)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # a made-up header makes readers fail in every way there is
        raise ImageError(f"{name}: not a readable image ({type(error).__name__})") from error
    if height * width > most:
        raise ImageError(f"{name}: {height}x{width} pixels, wanted at most {most} of them")
    return height * width


def decode_bounded(content: bytes, name: str, *, most: int) -> Shaped[np.ndarray, "h w c"]:
    """Returns the image in a file's content, as :func:`jaxatr.data.read_image` returns a file's.

    Args:
      content: of the file.
      name: for the error message.
      most: pixels that are accepted.

    Raises:
      ImageError: as :func:`pixels_of`, or the file is damaged.
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
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages.first
        if math.prod(page.shape) > 3 * page.imagelength * page.imagewidth:
            raise ImageError(
                f"got an array of shape {list(page.shape)}, wanted [h, w] or [h, w, 3]"
            )
        return page.imagelength, page.imagewidth
