"""GIF files, of which the first frame is read.

Comments and the data of applications before it have no effect on the pixels. Pillow joins all
comments to one, in a time that grows with the square of their number.
"""

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import Header, check_parts

START = (b"GIF87a", b"GIF89a")
_EXTENSION, _CONTROL, _FRAME = 0x21, 0xF9, 0x2C
_BLOCKS = "blocks of a GIF before its first frame"


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ImageError: the file has too many blocks before its first frame.
      ValueError: it is damaged.
    """
    return pillow.header(_first_frame(content), ("GIF",))


def _first_frame(content: bytes) -> bytes:
    """Returns the file without the extensions before the first frame, except its control."""
    at = 13 + (3 << (content[10] & 7) + 1 if content[10] & 0x80 else 0)
    start, control, count = content[:at], b"", 0
    while content[at] == _EXTENSION:
        begin, is_control = at, content[at + 1] == _CONTROL
        at += 2
        check_parts(count := count + 1, _BLOCKS)
        while size := content[at]:
            check_parts(count := count + 1, _BLOCKS)
            at += 1 + size
        at += 1
        if is_control:
            control = content[begin:at]
    if content[at] != _FRAME:
        raise ValueError(f"a damaged GIF: byte {at} does not begin a frame")
    return start + control + content[at:]
