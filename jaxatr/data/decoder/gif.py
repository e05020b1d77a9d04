"""GIF files, of which the first frame is read.

Comments and the data of applications before it have no effect on the pixels. Pillow joins all
comments to one, in a time that grows with the square of their number.
"""

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import Header

START = (b"GIF87a", b"GIF89a")
_EXTENSION, _CONTROL, _FRAME = 0x21, 0xF9, 0x2C


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ValueError: the file is damaged.
    """
    return pillow.header(_first_frame(content), ("GIF",))


def _first_frame(content: bytes) -> bytes:
    """Returns the file without the extensions before the first frame, except its control."""
    at = 13 + (3 << (content[10] & 7) + 1 if content[10] & 0x80 else 0)
    start, control = content[:at], b""
    while content[at] == _EXTENSION:
        begin, is_control = at, content[at + 1] == _CONTROL
        at += 2
        while size := content[at]:
            at += 1 + size
        at += 1
        if is_control:
            control = content[begin:at]
    if content[at] != _FRAME:
        raise ValueError(f"a damaged GIF: byte {at} does not begin a frame")
    return start + control + content[at:]
