"""Decoding of image files from anywhere, with limits on what it takes.

A file of a few kilobytes may state gigabytes, and the parts of a file may state different sizes.
Each format therefore has a module whose function ``header`` reads and checks what the file states
about its image (:class:`Header`) before anything is unpacked, and gives Pillow only those parts of
the file that hold pixels.

This package imports only NumPy, Pillow, and, for a few types of TIFF, tifffile. Its modules are
copied into the container of an exported run, which therefore reads the same images.
"""

import re
import struct
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from PIL import Image

from jaxatr.data.decoder import compression, gif, jpeg, jpeg2000, npy, phoenix, pillow, png, tiff
from jaxatr.data.decoder.directory import nodata
from jaxatr.data.decoder.header import MOST_BANDS, MOST_PARTS, MOST_PIXELS, Header, ImageError
from jaxatr.data.decoder.measured import bands_of, filled, measured

__all__ = [
    "ENVI",
    "FORMATS",
    "MOST_BANDS",
    "MOST_PARTS",
    "MOST_PIXELS",
    "RADAR",
    "Header",
    "ImageError",
    "check_order",
    "compression",
    "decode",
    "header",
    "is_measurement",
    "filled",
    "measured",
    "pillow",
    "reason",
]

FORMATS = ("PNG", "JPEG", "TIFF", "GIF", "BMP", "WEBP", "JPEG2000")
"""Pillow's names of the accepted formats; ``.npy`` files and MSTAR's raw chips are accepted too."""

_NITF = (b"NITF", b"NSIF")
_SIO = (b"\xff\x01\x7f\xfe", b"\xfe\x7f\x01\xff", b"\xff\x02\x7f\xfd", b"\xfd\x7f\x02\xff")
RADAR = (*_NITF, *_SIO)
"""First bytes of radar files, which this package does not read."""

ENVI = b"ENVI"
"""First bytes of a header of ENVI, whose pixels are in another file."""

_MODULES: tuple[ModuleType, ...] = (npy, phoenix, png, jpeg, tiff, gif, jpeg2000)
_LONGEST = 300


def is_measurement(content: bytes) -> bool:
    """Whether a file's first bytes are those of a NumPy array or a raw chip of MSTAR."""
    return content.startswith((npy.START, phoenix.START))


def header(content: bytes, name: str, *, most: int = MOST_PIXELS, others: bool = False) -> Header:
    """Reads and checks what a file states about its image.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: largest number of pixels.
      others: accept other formats of Pillow, too, whose work is not bounded.

    Raises:
      ImageError: the image exceeds a limit, the format is not supported, or the file is damaged.
    """
    try:
        found = _header(content, others)
        found.check(most)
        return found
    except Exception as error:  # of a forged header, any kind
        raise named(name, error, empty=not content) from error


def decode(
    content: bytes,
    name: str,
    *,
    most: int = MOST_PIXELS,
    others: bool = False,
    phase: bool = False,
    names: Sequence[str] = (),
    fill: bool = False,
) -> np.ndarray:
    """Decodes an image as ``[h, w, c]``, 1 to 16 bands of uint8, uint16 or float32.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      most: largest number of pixels.
      others: accept other formats of Pillow, too, whose work is not bounded.
      phase: make two bands of each complex one, its magnitude and its phase in radians.
      names: names of the bands in the wanted order, if they have any.
      fill: make missing values of a TIFF 0: those that it names, and those that are not finite.

    Raises:
      ImageError: see :func:`header`; or the pixels are damaged, or not finite, or the file names
        its bands in another order than ``names``.
    """
    found = header(content, name, most=most, others=others)
    if names and content.startswith(tiff.START):
        check_order(tiff.band_names(content), names, name)
    try:
        values = found.read()
        if fill and content.startswith(tiff.START):
            bands_of(values.shape)
            values = np.array(values).reshape(*values.shape[:2], -1)
            values = filled(values, nodata(content))
        return measured(values, phase=phase)
    except Exception as error:  # of a damaged file, any kind
        raise named(name, error, empty=not content) from error


def check_order(own: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """Checks that no band of an image is in the place of another.

    Args:
      own: names of the image's bands; empty if they are not known.
      wanted: names of the bands in their places. Names of ``own`` that are not among them say
        nothing about places.
      name: the file's name, for error messages.

    Raises:
      ImageError: a name has another place.
    """
    if any(one in wanted and wanted.index(one) != place for place, one in enumerate(own)):
        raise ImageError(
            f"{name}: its bands are {', '.join(own)}, wanted the order {', '.join(wanted)}"
        )


def _header(content: bytes, others: bool) -> Header:
    for module in _MODULES:
        if content.startswith(module.START):
            return module.header(content)
    if content.startswith(RADAR):
        raise ImageError("a radar file (NITF, SICD or SIO): save its image as TIFF or .npy")
    if content.startswith(ENVI):
        raise ImageError(
            "a header of ENVI without the file of its pixels: save the image as TIFF or .npy"
        )
    try:
        return pillow.header(content, None if others else FORMATS)
    except Image.UnidentifiedImageError as error:
        if others or not content:
            raise
        raise ImageError(
            f"not a readable image, wanted one of {', '.join(FORMATS)} or .npy"
        ) from error


def named(name: str, error: Exception, *, empty: bool = False) -> ImageError:
    """Returns the error of a file that cannot be read.

    Args:
      name: the file's name.
      error: why; any library's, or an :class:`ImageError`, which says it in its own words.
      empty: whether the file has no content, which explains any error.
    """
    if isinstance(error, ImageError):
        return ImageError(f"{name}: {error}")
    why = "empty file" if empty else reason(error)
    return ImageError(f"{name}: not a readable image ({why})")


def reason(error: Exception) -> str:
    """Returns an error's message as a line of text, or its type if it has none."""
    if isinstance(error, struct.error):
        return "the file is truncated"
    text = re.sub(r" <_io\.BytesIO[^>]*>", "", str(error))
    text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return text[:_LONGEST] or type(error).__name__
