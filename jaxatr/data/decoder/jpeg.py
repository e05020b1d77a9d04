"""JPEG files: only the segments that hold pixels are given to Pillow, and scans are counted.

A progressive JPEG is decoded in as many passes as it has scans. A scan may be a few bytes long, so
that a small file can keep a decoder busy for minutes.
"""

import re
from collections.abc import Iterator

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import Header, check_parts

START = b"\xff\xd8\xff"
_START, _END, _SCAN, _TEMPORARY = 0xD8, 0xD9, 0xDA, 0x01
_COMMENT, _APPLICATION = 0xFE, range(0xE0, 0xF0)
_COLOURS = (0xE0, 0xEE)  # the segments of JFIF and of Adobe say how colours are stored
# In a scan, 0xFF is followed by 0 or the number of a restart, unless it begins a segment.
_MARKER = re.compile(rb"\xff([\x01\xc0-\xcf\xd8-\xfe])")


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ImageError: the file has too many segments.
      ValueError: it has no scan.
    """
    kept, count = [content[:2]], 0
    # Profiles, previews and the like are left out, and so is what is between segments, over which
    # Pillow would go byte by byte.
    for kind, at, end in _segments(content):
        if kind == _SCAN:
            count += 1
            kept += [content[at:]] if count == 1 else []
        elif not count and (kind in _COLOURS or not (kind == _COMMENT or kind in _APPLICATION)):
            kept.append(content[at:end])
    if not count:
        raise ValueError("a damaged JPEG: it has no scan")
    return pillow.header(b"".join(kept), ("JPEG",))._replace(passes=count)


def scans(content: bytes | memoryview) -> int:
    """Returns the number of scans in a JPEG, at least 1.

    Raises:
      ImageError: the file has too many segments.
    """
    return max(sum(kind == _SCAN for kind, _, _ in _segments(content)), 1)


def _segments(content: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Yields the kind, the start and the end of each segment that has a length."""
    count, at = 0, 2
    while (marker := _MARKER.search(content, at)) is not None:
        kind, at = marker[1][0], marker.end()
        if kind == _END:
            break
        check_parts(count := count + 1, "segments of a JPEG")
        if kind not in (_START, _TEMPORARY):
            at += _length(content, at)
            yield kind, marker.start(), at


def _length(content: bytes | memoryview, at: int) -> int:
    return int.from_bytes(content[at : at + 2], "big")
