"""Reading of image files as arrays in their recorded range."""

import io
import os
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from jaxatr.data import measurements
from jaxatr.typing import Shaped

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".bmp", ".webp", ".jp2", ".j2k", ".npy"),
    *(".ntf", ".nitf", ".nsf", ".sio"),
)
"""Suffixes of image files, in lower case."""

# The mode that a Pillow image is converted to before it becomes an array. Palettes and alpha planes
# are not measurements: colours are looked up, alpha is dropped.
_EIGHT_BIT = {
    "1": "L",
    "L": "L",
    "LA": "L",
    "La": "L",
    "P": "RGB",
    "PA": "RGB",
    "RGB": "RGB",
    "RGBA": "RGB",
    "RGBa": "RGB",
    "RGBX": "RGB",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "LAB": "RGB",
    "HSV": "RGB",
}
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")


class ImageError(ValueError):
    """An image file cannot be used; the message names the file and the reason."""


class MissingImageError(FileNotFoundError, ImageError):
    """There is no such file."""


def read_image(path: str | os.PathLike) -> Shaped[np.ndarray, "h w c"]:
    """Reads an image file as ``[h, w, c]`` with ``c`` 1 (gray) or 3 (RGB).

    8-bit images, palettes and bilevel images become uint8, 16-bit images uint16, float and 32-bit
    integer images float32, complex images float32 magnitudes; nothing is rescaled. Alpha is
    dropped, and only the first frame of an animated GIF or WebP is read.

    Args:
      path: a file in any format that Pillow reads; a TIFF of any numeric type; a NumPy array
        (``.npy``); a raw chip of MSTAR; or, with the extra ``radar``, NITF, SICD and SIO (sarpy).

    Raises:
      MissingImageError: there is no such file.
      ImageError: the file is not an image, damaged, has several pages or NaN, or would
        lose range (16-bit colour, or 16-bit gray with alpha); the message names the file.
    """
    try:
        content = Path(path).read_bytes()
    except IsADirectoryError as error:
        raise ImageError(f"{path}: a folder, wanted an image file: {path}/*") from error
    except OSError as error:
        kind = MissingImageError if isinstance(error, FileNotFoundError) else ImageError
        raise kind(f"{path}: {error.strerror or error}") from error
    return decode_image(content, str(path))


def as_image(value: object, name: str = "image") -> Shaped[np.ndarray, "h w c"]:
    """Converts a path, a Pillow image or an array to an image like those of :func:`read_image`.

    Args:
      value: a path, a Pillow image, or an array ``[h, w]`` or ``[h, w, c]`` with ``c`` 1 or 3,
        which is treated like a ``.npy`` file.
      name: the image's name in error messages, unless it is a path.

    Raises:
      ImageError: the value is none of these, or the image cannot be used.
    """
    if isinstance(value, str | os.PathLike):
        return read_image(value)
    try:
        if isinstance(value, Image.Image):
            return _to_array(value, name)
        if is_array_image(value):
            return measurements.measured(np.asarray(value))
    except ImageError:
        raise
    except (ValueError, OSError, SyntaxError) as error:  # a file that Pillow opened and now decodes
        raise ImageError(f"{name}: {error}") from error
    raise ImageError(
        f"{name}: got a {type(value).__name__}, wanted a path, a Pillow image or an array"
    )


def is_array_image(value: object) -> bool:
    """Whether a value is an array, of NumPy or another library, with 2 or 3 axes."""
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) in (2, 3)


def read_folder(path: str | os.PathLike) -> list[Shaped[np.ndarray, "h w c"]]:
    """Reads the images of a folder like :func:`read_image`, in the natural order of their names.

    Digits count as numbers, so ``frame2.png`` is before ``frame10.png``. Hidden files are left out.

    Raises:
      ImageError: the folder does not exist or is empty, or a file cannot be used.
    """
    try:
        names = [entry.name for entry in os.scandir(path) if not entry.name.startswith(".")]
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror or error}; wanted a folder") from error
    if not names:
        raise ImageError(f"{path}: there is no image in this folder")
    return [read_image(Path(path) / name) for name in sorted(names, key=_natural)]


def _natural(name: str) -> tuple[list[str | int], str]:
    """Returns the key of the natural order; names that differ in leading zeros keep an order."""
    parts = re.split("([0-9]+)", name)  # text and digits in turn, beginning with text
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name


def decode_image(content: bytes, name: str) -> Shaped[np.ndarray, "h w c"]:
    """Decodes a file's content like :func:`read_image`; ``name`` is used in error messages."""
    try:
        if (read := measurements.reader_of(content)) is not None:
            return measurements.measured(read(content))
        with open_image(content) as image:
            if image.format == "TIFF" and _has_another_page(image):
                raise ImageError(f"{name}: holds several pages; one image per file is expected")
            image.seek(0)
            if _is_cut_to_8_bits(image, content):
                raise ImageError(
                    f"{name}: a {image.format} with several channels of more than 8 bits, of which "
                    "Pillow keeps only the upper 8; save it as one channel of 16-bit gray or of "
                    "floats, or as 8-bit colour"
                )
            return _to_array(image, name)
    except (ImageError, ImportError):  # an ImportError names the missing extra
        raise
    except UnidentifiedImageError as error:
        if not measurements.is_tiff(content):
            raise _unreadable(name, content, error) from error
        try:
            return measurements.measured(measurements.read_tiff(content))
        except Exception as error:
            raise _unreadable(name, content, error) from error
    except Exception as error:  # on damaged files Pillow's decoders can raise anything
        raise _unreadable(name, content, error) from error


def open_image(content: bytes, formats: tuple[str, ...] | None = None) -> Image.Image:
    """Opens a file's content with Pillow, such that truncated files raise an error.

    Args:
      content: the file's content.
      formats: Pillow's names of the formats to try; None for all.
    """
    # sarpy and TFDS set this for the whole process, so that Pillow would fill in missing data.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    return Image.open(io.BytesIO(content), formats=formats)


def _has_another_page(image: Image.Image) -> bool:
    try:
        image.seek(1)  # not n_frames, which visits every page
    except EOFError:
        return False
    return True


def _unreadable(name: str, content: bytes, error: Exception) -> ImageError:
    message = str(error).replace(repr(content), "")
    message = re.sub(r" <_io\.BytesIO[^>]*>", "", message) or type(error).__name__
    return ImageError(f"{name}: not a readable image ({message if content else 'empty file'})")


def _to_array(image: Image.Image, name: str) -> np.ndarray:
    if image.mode in _EIGHT_BIT:
        mode = "L" if image.format == "GIF" and _is_gray(image) else _EIGHT_BIT[image.mode]
        array = np.array(image.convert(mode))
    elif image.mode in _SIXTEEN_BIT:
        array = np.array(image).astype(np.uint16)
    elif image.mode in ("I", "F"):
        array = np.array(image).astype(np.float32)
        if not np.isfinite(array).all():
            raise ImageError(f"{name}: holds pixels that are not finite numbers")
    else:
        raise ImageError(f"{name}: Pillow's mode {image.mode!r} is not supported")
    return array[:, :, None] if array.ndim == 2 else array


def _is_gray(image: Image.Image) -> bool:
    """Whether a palette has grays only: a GIF has no other way to store a gray image."""
    colours = np.array(image.getpalette() or [], np.uint8).reshape(-1, 3)
    return bool(np.all(colours == colours[:, :1]))


def _is_cut_to_8_bits(image: Image.Image, content: bytes) -> bool:
    """Whether the file has more bits per channel than Pillow keeps of them."""
    if image.format == "PNG":
        # Bytes 24 and 25 are bit depth and colour type (2 RGB, 4 gray and alpha, 6 RGBA).
        return content[24] == 16 and content[25] in (2, 4, 6)
    if image.format == "JPEG2000":
        # In the codestream, 36 bytes after its first marker: the channel count and the bit depths.
        start = content.find(b"\xff\x4f\xff\x51") + 40
        count = int.from_bytes(content[start : start + 2], "big")
        depths = content[start + 2 : start + 2 + 3 * count : 3]
        return image.mode in _EIGHT_BIT and any((depth & 0x7F) + 1 > 8 for depth in depths)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))
        return max(bits) > 8 and image.mode in _EIGHT_BIT
    return False
