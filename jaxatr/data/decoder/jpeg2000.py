"""JPEG 2000 files, whose codestream states the size that is decoded."""

import numpy as np

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import Header, ImageError, too_wide

_BOXES, _CODESTREAM = b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"
START = (_BOXES, _CODESTREAM)
_MOST_CHANNELS = 4
_SIGNED = 0x80
_LEAST_BLOCK = 256  # pixels of a code block or precinct: each takes memory and time of its own


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ImageError: the sizes in the file contradict each other, or the samples are signed or would
        lose bits.
    """
    stream = content[_start(content) :][:4096]
    left, top = _number(stream, 16), _number(stream, 20)
    width, height = _number(stream, 8) - left, _number(stream, 12) - top
    channels = int.from_bytes(stream[40:42], "big")
    if not 1 <= channels <= _MOST_CHANNELS:
        raise ImageError(f"{channels} channels, wanted at most {_MOST_CHANNELS}")
    image = pillow.opened(content, ("JPEG2000",))
    if image.size != (width, height):
        raise ImageError(
            f"states {image.height}x{image.width} pixels, and {height}x{width} in its codestream"
        )
    depths = stream[42 : 42 + 3 * channels : 3]
    bits = max(depth & 0x7F for depth in depths) + 1
    if any(depth & _SIGNED for depth in depths):
        raise ImageError("a JPEG 2000 of signed samples, which Pillow shifts: save it as TIFF")
    if bits > 8 and image.mode in pillow.EIGHT_BIT:
        raise too_wide("JPEG2000")

    def read() -> np.ndarray:
        values = pillow.to_array(image)
        # Pillow fills 8 or 16 bits from the top.
        return values >> (8 * values.dtype.itemsize - bits) if len(set(depths)) == 1 else values

    return Header(height, width, read, _passes(stream, height * width))


def _start(content: bytes) -> int:
    """Returns the position of the codestream."""
    if content.startswith(_CODESTREAM):
        return 0
    at = 0
    while at + 8 <= len(content):
        length, body = _number(content, at), at + 8
        if content[at + 4 : body] == b"jp2c":
            body += 8 * (length == 1)
            if content[body : body + 4] == _CODESTREAM:
                return body
            break
        if length == 1:  # the length follows in 8 bytes
            length = int.from_bytes(content[body : body + 8], "big")
        if length < 8:
            break
        at += length
    raise ValueError("a JPEG 2000 without a codestream")


def _passes(stream: bytes, pixels: int) -> int:
    """Returns how often decoding visits each pixel, by the segment of the coding style."""
    at = 4 + int.from_bytes(stream[4:6], "big")
    while stream[at : at + 1] == b"\xff" and stream[at + 1] not in (0x90, 0x52):
        at += 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    style = stream[at + 4 :]
    if stream[at + 1 : at + 2] != b"\x52" or len(style) < 10:
        raise ValueError("a JPEG 2000 without a coding style")
    layers, levels = int.from_bytes(style[2:4], "big"), style[5]
    block = 1 << (style[6] + 2) + (style[7] + 2)
    precincts = style[10 : 11 + levels] if style[0] & 1 else b"\xff"
    precinct = min(1 << (one & 15) + (one >> 4) for one in precincts)
    small = max(1, _LEAST_BLOCK // block, _LEAST_BLOCK // precinct)
    packets = layers * (levels + 1) * max(1, pixels // precinct)
    return max(small, packets * _LEAST_BLOCK // max(pixels, _LEAST_BLOCK << 6), 1)


def _number(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + 4], "big")
