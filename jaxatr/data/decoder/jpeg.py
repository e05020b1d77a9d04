"""JPEG files: only the segments that hold pixels are given to Pillow, and scans are counted.

A progressive JPEG is decoded in as many passes as it has scans. A scan may be a few bytes long, so
that a small file can keep a decoder busy for minutes.
"""

import re

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import Header

START = b"\xff\xd8\xff"
_SCAN, _END, _TEMPORARY = 0xDA, 0xD9, 0x01
_COMMENT, _APPLICATION = 0xFE, range(0xE0, 0xF0)
_COLOURS = (0xE0, 0xEE)  # the segments of JFIF and of Adobe say how colours are stored
# In a scan, 0xFF is followed by 0 or the number of a restart, unless it begins a segment.
_MARKER = re.compile(rb"\xff([\x01\xc0-\xcf\xd8-\xfe])")


def header(content: bytes) -> Header:
    """Reads the header."""
    kept, at = [content[:2]], 2
    # Profiles, previews and the like are left out. Anything odd is left to Pillow.
    while content[at : at + 1] == b"\xff" and content[at + 1] not in (
        _SCAN,
        0xFF,
        *range(0xD0, 0xDA),
    ):
        kind, end = content[at + 1], at + 2 + _length(content, at + 2)
        if kind in _COLOURS or not (kind == _COMMENT or kind in _APPLICATION):
            kept.append(content[at:end])
        at = end
    read = pillow.header(b"".join([*kept, content[at:]]), ("JPEG",))
    return read._replace(passes=scans(content))


def scans(content: bytes | memoryview) -> int:
    """Returns the number of scans in a JPEG, at least 1."""
    found, at = 0, 2
    while (marker := _MARKER.search(content, at)) is not None:
        kind, at = marker[1][0], marker.end()
        if kind == _END:
            break
        found += kind == _SCAN
        if kind != _TEMPORARY:
            at += _length(content, at)
    return max(found, 1)


def _length(content: bytes | memoryview, at: int) -> int:
    return int.from_bytes(content[at : at + 2], "big")
