"""Files that Pillow decodes."""

import io
import itertools
import re
import struct
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin

from jaxatr.data.decoder import directory as tags
from jaxatr.data.decoder.header import Header, ImageError, too_wide

# The mode that a Pillow image is converted to before it becomes an array. Palettes and alpha planes
# are not measurements: colours are looked up, alpha is dropped.
EIGHT_BIT = {
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
"""Pillow's modes of 8 bits, with the mode to convert each to."""

_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")
_WIDEST = 65535


def opened(content: bytes, formats: tuple[str, ...] | None = None) -> Image.Image:
    """Opens a file's content with Pillow, such that truncated files raise an error.

    Args:
      content: the file's content.
      formats: Pillow's names of the formats to try; None for all.
    """
    # sarpy and TFDS set this for the whole process, so that Pillow would fill in missing data.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    return Image.open(io.BytesIO(content), formats=formats)


def unpack_segments(stored: Sequence[bytes | memoryview], compression: int, size: int) -> bytes:
    """Unpacks strips or tiles of a TIFF with the libtiff that Pillow brings.

    Args:
      stored: the strips or tiles as they are stored.
      compression: number of the compression, of any that packs bytes.
      size: number of bytes to unpack of each; what comes after them is ignored.

    Raises:
      OSError: one is damaged or shorter.
    """
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    body = b"".join(stored)
    body += bytes(len(body) % 2)
    counts = [len(one) for one in stored]
    starts = list(itertools.accumulate(counts[:-1], initial=8))
    lists = 8 + len(body)  # of places and lengths, which a tag holds itself if there is one
    lone = len(stored) == 1
    entries = {
        tags.WIDTH: (1, size),
        tags.HEIGHT: (1, len(stored)),
        tags.BITS: (1, 8),
        tags.COMPRESSION: (1, compression),
        tags.PHOTOMETRIC: (1, 1),
        tags.STRIPS: (len(stored), starts[0] if lone else lists),
        tags.STRIP_ROWS: (1, 1),
        tags.STRIP_BYTES: (len(stored), counts[0] if lone else lists + 4 * len(stored)),
    }
    file = [
        struct.pack("<4sL", b"II*\0", lists + 8 * len(stored)),
        body,
        struct.pack(f"<{2 * len(stored)}L", *starts, *counts),
        struct.pack("<H", len(entries)),
        *(struct.pack("<HHLL", tag, 4, *entries[tag]) for tag in sorted(entries)),
        bytes(4),
    ]
    # Image.open would count the bytes of the strips as the pixels of an image, and refuse many.
    return TiffImagePlugin.TiffImageFile(io.BytesIO(b"".join(file))).tobytes()


def header(content: bytes, formats: tuple[str, ...] | None = None) -> Header:
    """Reads the header of a file that holds one image, or of whose images the first counts.

    Args:
      content: the file's content.
      formats: Pillow's names of the formats to try; None for all.
    """
    image = opened(content, formats)
    return Header(image.height, image.width, lambda: to_array(image))


def to_array(image: Image.Image) -> np.ndarray:
    """Decodes a Pillow image to an array of uint8, uint16, int32 or float32.

    Raises:
      ImageError: the mode is not supported, or Pillow keeps only the upper bits of the file.
    """
    if image.mode in EIGHT_BIT:
        if _is_wide(image):
            raise too_wide(image.format or "file")
        mode = "L" if image.format == "GIF" and _is_gray(image) else EIGHT_BIT[image.mode]
        return np.array(image.convert(mode))
    if image.mode in _SIXTEEN_BIT:
        return np.array(image).astype(np.uint16)
    if image.mode == "I" and image.format == "PPM":
        most = max(_largest(image), default=_WIDEST)
        # Pillow spreads gray of 9 to 15 bits over 16.
        return np.rint(np.array(image) * (most / _WIDEST)).astype(np.uint16)
    if image.mode in ("I", "F"):
        return np.array(image)
    raise ImageError(f"Pillow's mode {image.mode!r} is not supported")


def _is_wide(image: Image.Image) -> bool:
    """Whether the file that an image is still to be decoded from has more than 8 bits a sample."""
    for codec, _, _, given in getattr(image, "tile", ()):
        mode = given[0] if isinstance(given, tuple) else given
        if codec == "SGI16" or re.search(";16[BLN]", str(mode)):
            return True
    return any(most > 255 for most in _largest(image))


def _largest(image: Image.Image) -> list[int]:
    """Returns the largest number of a PPM that is still to be decoded, if Pillow scales by it."""
    tiles = getattr(image, "tile", ())
    given = [one for codec, *_, one in tiles if codec.startswith("ppm")]
    return [one[1] for one in given if isinstance(one, tuple)]


def _is_gray(image: Image.Image) -> bool:
    """Whether a palette has grays only: a GIF has no other way to store a gray image."""
    colours = np.array(image.getpalette() or [], np.uint8).reshape(-1, 3)
    return bool(np.all(colours == colours[:, :1]))
