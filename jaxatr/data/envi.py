"""Images of ENVI: a header in text, and the pixels in another file beside it."""

import re
import zlib
from pathlib import Path, PurePath
from typing import TypeVar

import numpy as np

from jaxatr.data.decoder import ENVI, MOST_PIXELS, Header, ImageError

Place = TypeVar("Place", bound=PurePath)

SUFFIX = ".hdr"
_LONGEST = 1 << 20  # bytes of a header
_TYPES = {
    **{1: "u1", 2: "i2", 3: "i4", 4: "f4", 5: "f8", 6: "c8", 9: "c16"},
    **{12: "u2", 13: "u4", 14: "i8", 15: "u8"},
}
_ORDERS = {"bsq": (1, 2, 0), "bil": (0, 2, 1), "bip": (0, 1, 2)}
"""Axes of the stored numbers by the interleave, to get rows, columns, bands."""
_ENDINGS = ("", ".img", ".dat", ".raw", ".bin", *(f".{name}" for name in _ORDERS))


def is_envi(content: bytes) -> bool:
    """Whether a file's first bytes are those of a header."""
    return content.startswith(ENVI)


def pixels_beside(header: Path) -> Path:
    """Returns the file of a header's pixels: ``chip``, ``chip.img`` … beside ``chip.hdr``.

    Raises:
      ImageError: there is none.
    """
    stem = header.with_suffix("")
    for ending in (*_ENDINGS, *map(str.upper, _ENDINGS[1:])):
        if (found := stem.with_name(stem.name + ending)).is_file():
            return found
    wanted = ", ".join(stem.name + ending for ending in _ENDINGS)
    raise ImageError(f"a header of ENVI without its pixels beside it, wanted one of {wanted}")


def is_part(path: Path) -> bool:
    """Whether a file is a header of ENVI, or holds the pixels of one beside it."""
    return bool(header_beside(path)) or (path.suffix.lower() == SUFFIX and _begins(path))


def header_beside(pixels: Path) -> Path | None:
    """Returns the header of a file of pixels; None if it has none, or is no such file."""
    for header in headers_of(pixels):
        if header.is_file() and _begins(header):
            return header
    return None


def _begins(header: Path) -> bool:
    try:
        with open(header, "rb") as file:
            return is_envi(file.read(len(ENVI)))
    except OSError:  # reported where it is read
        return False


def headers_of(pixels: Place) -> list[Place]:
    """Returns the paths that the header of a file of pixels may have; none for other files."""
    if not pixels.name or pixels.suffix.lower() not in _ENDINGS:  # a folder itself has no name
        return []
    return [pixels.with_name(f"{name}{SUFFIX}") for name in (pixels.stem, pixels.name)]


def beside(path: Path) -> list[Path]:
    """Returns the file of a header's pixels, or the header of a file of pixels; else none."""
    if path.suffix.lower() == SUFFIX and _begins(path):
        return [pixels_beside(path)]
    header = header_beside(path)
    return [header] if header else []


def band_names(header: bytes) -> tuple[str, ...]:
    """Returns the names of the bands that a header states; none if it states none."""
    text = _fields(header).get("band names", "")
    names = [name.strip() for name in text.strip("{}").split(",")]
    return tuple(names) if any(names) else ()


def decode(header: bytes, pixels: bytes) -> np.ndarray:
    """Decodes an image ``[h, w, c]`` in its recorded type.

    Args:
      header: content of the header.
      pixels: content of the file of the pixels.

    Raises:
      ImageError: the header lacks a field, states what is not supported, or does not fit the size
        of the other file.
    """
    fields = _fields(header)
    height, width, bands = (_number(fields, name) for name in ("lines", "samples", "bands"))
    if min(height, width, bands) < 1:
        raise ImageError(f"a header of ENVI of {height}x{width} pixels and {bands} bands")
    Header(height, width, lambda: np.empty(0), bands=bands).check(MOST_PIXELS)
    offset, order = (_number(fields, name, 0) for name in ("header offset", "byte order"))
    code, kind = _TYPES.get(number := _number(fields, "data type")), fields.get("interleave", "bsq")
    if code is None or kind.lower() not in _ORDERS or order not in (0, 1) or offset < 0:
        raise ImageError(
            f"a header of ENVI with data type {number}, interleave {kind!r}, byte order {order} "
            f"and header offset {offset}; wanted a type of {', '.join(map(str, _TYPES))}, "
            f"{', '.join(_ORDERS)}, an order 0 or 1, and no negative offset"
        )
    dtype = np.dtype(("<", ">")[order] + code)
    wanted = offset + height * width * bands * dtype.itemsize
    if _number(fields, "file compression", 0):
        pixels = _unpacked(pixels, wanted)
    if len(pixels) != wanted:
        raise ImageError(
            f"pixels of {len(pixels)} bytes, but the header of ENVI states {wanted}: "
            f"{height} lines, {width} samples, {bands} bands of {dtype.itemsize} bytes"
        )
    axes = _ORDERS[kind.lower()]
    sizes = (height, width, bands)
    stored = tuple(sizes[axes.index(place)] for place in range(3))
    values = np.frombuffer(pixels, dtype, offset=offset).reshape(stored)
    return values.transpose(axes)


def _fields(header: bytes) -> dict[str, str]:
    """Returns the fields ``name = value`` of a header; a value in braces may have several lines."""
    if len(header) > _LONGEST:
        raise ImageError(f"a header of ENVI of {len(header)} bytes, wanted at most {_LONGEST}")
    found: dict[str, str] = {}
    lines = iter(header.decode("utf-8", "replace").splitlines())
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or line.lstrip().startswith(";"):  # a comment
            continue
        parts = [value.strip()]
        while parts[0].startswith("{") and "}" not in parts[-1]:
            if (more := next(lines, None)) is None:
                raise ImageError(f"a header of ENVI whose {name.strip()!r} does not end")
            parts.append(more.strip())
        found[name.strip().lower()] = " ".join(parts)
    return found


def _number(fields: dict[str, str], name: str, default: int | None = None) -> int:
    text = fields.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ImageError(f"a header of ENVI whose {name!r} is {text[:40]!r}, wanted a number")
    return int(text)


def _unpacked(pixels: bytes, most: int) -> bytes:
    try:
        unpacker = zlib.decompressobj(wbits=31)  # gzip
        return unpacker.decompress(pixels, most + 1)
    except zlib.error as error:
        raise ImageError(f"pixels of ENVI that are not compressed as stated ({error})") from error
