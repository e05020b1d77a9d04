"""Reading of image files as arrays in their recorded range."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from jaxatr.data import decoder, envi, radar
from jaxatr.data.decoder import ImageError
from jaxatr.files import read_regular
from jaxatr.typing import Shaped

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".bmp", ".webp", ".jp2", ".j2k", ".npy"),
    *(".ntf", ".nitf", ".nsf", ".sio"),
)
"""Suffixes of image files, in lower case."""


class MissingImageError(FileNotFoundError, ImageError):
    """There is no such file."""


def read_image(path: str | os.PathLike) -> Shaped[np.ndarray, "h w c"]:
    """Reads an image file as ``[h, w, c]`` with ``c`` 1 (gray), 3 (RGB) or another number of bands.

    8-bit images, palettes and bilevel images become uint8, 16-bit images uint16, float and 32-bit
    integer images float32, complex images float32 magnitudes; nothing is rescaled. Alpha is
    dropped, and only the first frame of an animated GIF or WebP is read.

    Args:
      path: a file in any format that Pillow reads; a TIFF of any numeric type; a NumPy array
        (``.npy``); the header of ENVI, beside the file of its pixels; a raw chip of MSTAR; or, with
        the extra ``radar``, NITF, SICD and SIO (sarpy).

    Raises:
      MissingImageError: there is no such file.
      ImageError: the file is not an image, damaged, has several pages, more than 16 bands or NaN,
        or would lose range (a PNG of 16-bit colour); the message names the file.
    """
    return decode_file(Path(path), content_of(path, str(path)), str(path))


def content_of(path: str | os.PathLike, name: str) -> bytes:
    """Reads a file's content; ``name`` is used in error messages.

    Raises:
      MissingImageError: there is no such file.
      ImageError: it cannot be read.
    """
    try:
        return read_regular(path)
    except IsADirectoryError as error:
        raise ImageError(f"{name}: a folder, wanted an image file: {name}/*") from error
    except OSError as error:
        kind = MissingImageError if isinstance(error, FileNotFoundError) else ImageError
        raise kind(f"{name}: {error.strerror or error}") from error


def decode_file(
    path: Path, content: bytes, name: str, *, phase: bool = False
) -> Shaped[np.ndarray, "h w c"]:
    """Decodes a file's content like :func:`read_image`, with the file of its pixels if it has one.

    Args:
      path: the file.
      content: its content.
      name: its name in error messages.
      phase: make two bands of each complex one, its magnitude and its phase in radians.

    Raises:
      ImageError: see :func:`read_image`.
    """
    header = None if path.suffix.lower() in SUFFIXES else envi.header_beside(path)
    if header is None and not envi.is_envi(content):
        return decode_image(content, name, phase=phase)
    try:
        if header is None:
            pixels = read_regular(envi.pixels_beside(path))
        else:
            content, pixels = read_regular(header), content
        return decoder.measured(envi.decode(content, pixels), phase=phase)
    except (ValueError, OSError) as error:
        raise ImageError(f"{name}: {error}") from error


def as_image(
    value: object, name: str = "image", *, phase: bool = False
) -> Shaped[np.ndarray, "h w c"]:
    """Converts a path, a Pillow image or an array to an image like those of :func:`read_image`.

    Args:
      value: a path, a Pillow image, or an array ``[h, w]`` or ``[h, w, c]``, which is treated like
        a ``.npy`` file.
      name: the image's name in error messages, unless it is a path.
      phase: make two bands of each complex one, its magnitude and its phase in radians.

    Raises:
      ImageError: the value is none of these, or the image cannot be used.
    """
    if isinstance(value, str | os.PathLike):
        return read_image(value)
    try:
        if isinstance(value, Image.Image):
            return decoder.measured(decoder.pillow.to_array(value))
        if is_array_image(value):
            return decoder.measured(np.asarray(value), phase=phase)
    except Exception as error:  # of a file that Pillow opened and now decodes, any kind
        raise ImageError(f"{name}: {decoder.reason(error)}") from error
    raise ImageError(
        f"{name}: got a {type(value).__name__}, wanted a path, a Pillow image or an array"
    )


def is_array_image(value: object) -> bool:
    """Whether a value is an array, of NumPy or another library, with 2 or 3 axes."""
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) in (2, 3)


def natural_order(name: str) -> tuple[list[str | int], str]:
    """Returns the key of the natural order; names that differ in leading zeros keep an order."""
    parts = re.split("([0-9]+)", name)  # text and digits in turn, beginning with text
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name


def decode_image(
    content: bytes,
    name: str,
    *,
    phase: bool = False,
    names: Sequence[str] = (),
    fill: bool = False,
) -> Shaped[np.ndarray, "h w c"]:
    """Decodes a file's content like :func:`read_image`.

    Args:
      content: the file's content.
      name: the file's name, for error messages.
      phase: see :func:`read_image`.
      names: names of the bands in the wanted order; a TIFF that has them in another is refused.
      fill: make missing values of a TIFF 0, as in a scene.
    """
    if content.startswith(decoder.RADAR):
        return radar.decode(content, name, phase=phase)
    return decoder.decode(content, name, others=True, phase=phase, names=names, fill=fill)
