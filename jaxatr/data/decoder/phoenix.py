"""Reader of MSTAR's raw chips: an ASCII Phoenix header, then magnitude and phase.

The format follows public readers, among them the data set's own. It is inferred from these that
files start with the version line, and that chips usually have no native header but may have one.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np

from jaxatr.data.decoder.header import Header

START = b"[PhoenixHeaderVer"
_LONGEST_HEADER = 1 << 20
_FIELD = re.compile(rb"^[ \t]*(\w+)[ \t]*=[ \t]*([^\n]*)", re.MULTILINE)


class SceneError(ValueError):
    """The file is intact, but holds a scene with 16 bits per pixel instead of a chip."""


@dataclasses.dataclass(frozen=True)
class RawChip:
    """A chip and its header.

    Attributes:
      header: the fields as text, ``{"TargetType": "t72_tank", …}``.
      magnitude: ``[rows, columns]``, float32, magnitude of the complex image.
      phase: ``[rows, columns]``, float32, phase of the complex image, in radians.
    """

    header: dict[str, str]
    magnitude: np.ndarray
    phase: np.ndarray


def is_raw(path: Path) -> bool:
    """Whether a file starts like a raw chip."""
    with open(path, "rb") as file:
        return file.read(len(START)) == START


def header(content: bytes) -> Header:
    """Reads the header of a raw chip, whose image is its magnitude.

    Raises:
      ValueError: see :func:`parse`.
    """
    _, _, rows, columns = _shape(content)
    return Header(rows, columns, lambda: parse(content).magnitude)


def read_chip(path: Path) -> RawChip:
    """Reads a raw chip from a file.

    Raises:
      ValueError: the file is not a raw chip, its header contradicts its size, or it has invalid
        pixels; the message names the file and the byte.
      SceneError: the file is a whole scene.
      OSError: the file cannot be opened.
    """
    try:
        return parse(path.read_bytes())
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from error


def parse(content: bytes) -> RawChip:
    """Parses a raw chip: big-endian float32, all magnitudes row by row, then all phases.

    ``PhoenixHeaderLength`` (plus ``native_header_length``, if present) gives the offset of the
    pixels, and ``PhoenixSigSize`` the total length of headers and pixels.

    Raises:
      ValueError: the content is not a raw chip, its header contradicts its size, or it has invalid
        pixels; the message names the byte.
      SceneError: it is a whole scene.
    """
    fields, start, rows, columns = _shape(content)
    values = np.frombuffer(content, ">f4", 2 * rows * columns, start)
    pixels = values.reshape(2, rows, columns).astype(np.float32)
    odd = ~np.isfinite(pixels)
    odd[0] |= pixels[0] < 0
    if odd.any():
        at = start + 4 * int(np.argmax(odd))
        raise ValueError(f"byte {at}: a pixel that is negative or not a finite number")
    header = {name.decode(): value[0].decode("latin-1") for name, value in fields.items()}
    return RawChip(header, pixels[0], pixels[1])


def _shape(content: bytes) -> tuple[dict[bytes, tuple[bytes, int]], int, int, int]:
    """Returns the fields, the position of the pixels, and the numbers of rows and columns."""
    if not content.startswith(START):
        raise ValueError(f"byte 0: not a raw chip, which starts with {START.decode()}")
    head = content[:_LONGEST_HEADER]
    fields = _fields(head)
    length = _number(fields, "PhoenixHeaderLength", least=len(START))
    start = length + _number(fields, "native_header_length", least=0, absent=0)
    fields = _fields(head[:length])  # ignores matches among the pixels
    rows = _number(fields, "NumberOfRows", least=1)
    columns = _number(fields, "NumberOfColumns", least=1)
    end = start + 8 * rows * columns
    stated = _number(fields, "PhoenixSigSize", least=0, absent=end)
    if stated == start + 4 * rows * columns:
        raise SceneError(
            f"byte {start}: a whole scene with 16 bits per pixel, wanted a chip of floats"
        )
    size = len(content)
    if stated != end or size < end:
        raise ValueError(
            f"byte {min(start, size)}: {rows} rows of {columns} columns starting there end at byte "
            f"{end}; the header states {stated}, and the file ends at byte {size}"
        )
    return fields, start, rows, columns


def _fields(head: bytes) -> dict[bytes, tuple[bytes, int]]:
    """Returns each field's value and offset, up to the end of the header."""
    head = head.partition(b"[EndofPhoenixHeader]")[0]
    fields: dict[bytes, tuple[bytes, int]] = {}
    for match in _FIELD.finditer(head):
        fields.setdefault(match[1], (match[2].rstrip(), match.start(2)))
    return fields


def _number(
    fields: dict[bytes, tuple[bytes, int]], name: str, *, least: int, absent: int | None = None
) -> int:
    value, at = fields.get(name.encode(), (b"", 0))
    if not value and absent is not None:
        return absent
    if not re.fullmatch(rb"\d{1,10}", value) or int(value) < least:
        got = value[:40].decode("latin-1")
        raise ValueError(f"byte {at}: {name}: got {got!r}, wanted a number from {least}")
    return int(value)
