"""PNG files, of which only the chunks that hold pixels are given to Pillow.

Text, profiles and the frames of an animation have no effect on the pixels. Pillow reads them all
the same, and refuses the file for a long text or a wrong checksum in one of them.
"""

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import MOST_PARTS, Header, check_parts, too_wide

START = b"\x89PNG\r\n\x1a\n"
_ANCILLARY = 0x20  # of a chunk's first letter


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ImageError: the file is damaged, or has several channels of 16 bits.
    """
    if content[12:16] != b"IHDR":
        raise ValueError("a PNG that does not begin with its header")
    # Bytes 24 and 25 are bit depth and colour type (2 RGB, 4 gray and alpha, 6 RGBA).
    if content[24] == 16 and content[25] in (2, 4, 6):
        raise too_wide("PNG")
    return pillow.header(_pixels_only(content), ("PNG",))


def _pixels_only(content: bytes) -> bytes:
    """Returns the file without ancillary chunks."""
    kept, at, count = [START], len(START), 0
    while at < len(content):
        # Encoders write chunks of 8 KiB, of which the largest image may have more than MOST_PARTS.
        check_parts(count := count + 1, "chunks of a PNG", 2 * MOST_PARTS)
        kind = content[at + 4 : at + 8]
        end = at + 12 + int.from_bytes(content[at : at + 4], "big")
        if not kind.isalpha():
            raise ValueError(f"a damaged PNG: byte {at} does not begin a chunk")
        if not kind[0] & _ANCILLARY:
            kept.append(content[at:end])
        if kind == b"IEND":
            break
        at = end
    return b"".join(kept)
