"""Reader of the subheaders between an ARF file's header and first frame, in flag order.

The layout is the one that public readers agree on; where they differ, the file decides (see
:func:`read_subheaders`).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxatr.typing import UInt8

SOURCE, COLOURS, COMMENT, BANDS, FOOTERS, RANGING, HYPERBANDS = (1 << bit for bit in range(7))
KNOWN_FLAGS = (1 << 7) - 1
# Type 3 is unsigned in some readers and signed in others, which agree for values below 32768.
DTYPES = {
    0: np.dtype("u1"),
    1: np.dtype(">u2"),  # 10 bits
    2: np.dtype(">u2"),  # 12 bits
    3: np.dtype(">u2"),
    5: np.dtype(">u2"),
    6: np.dtype(">u4"),
    7: np.dtype(">f4"),
    8: np.dtype(">f8"),
}
_HEADER_BYTES = 32
_COLOUR_BYTES = (3072, 768)  # readers disagree: four bytes per channel, or one
_BAND_SLOTS = 16


@dataclass(frozen=True)
class Band:
    """One of the images of a frame.

    Attributes:
      name: the name in the file, or empty.
      dtype: dtype of the pixels, big-endian.
      rows: number of rows.
      columns: number of columns.
    """

    name: str
    dtype: np.dtype
    rows: int
    columns: int

    @property
    def nbytes(self) -> int:
        """The number of bytes of one image."""
        return self.rows * self.columns * self.dtype.itemsize


@dataclass(frozen=True)
class Source:
    """Place, time and equipment of the capture.

    Attributes:
      numbers: image source, first column, first row, number averaged, capture rate, and the
        capture's year, day of the year, hour, minute, second and millisecond.
      location: place of the capture.
      sensor: the sensor's name.
      digitizer: the digitizer's name.
      fov_deg: horizontal and vertical field of view.
      samples_per_dwell: samples per dwell of a scanning sensor.
    """

    numbers: tuple[int, ...]
    location: str
    sensor: str
    digitizer: str
    fov_deg: tuple[float, ...]
    samples_per_dwell: int


@dataclass(frozen=True)
class Subheaders:
    """The subheaders announced by the flags; absent ones are None, or 0.

    Attributes:
      source: place, time and equipment of the capture.
      colours: the colour map as raw bytes.
      comment: free text.
      bands: bands of a multiband file, each with the header's rows and columns.
      footer_flags: flags of the footers after each frame.
      ranging: frequency scale, range bias, horizontal and vertical field of view of a pixel, and
        coarse and fine resolution.
      hyperbands: bands of a hyperband file, each with its own rows and columns.
      end: byte offset after the subheaders.
    """

    source: Source | None
    colours: bytes | None
    comment: str | None
    bands: tuple[Band, ...] | None
    footer_flags: int
    ranging: tuple[float, ...] | None
    hyperbands: tuple[Band, ...] | None
    end: int


def read_subheaders(
    path: Path, data: UInt8[np.ndarray, " bytes"], flags: int, shape: tuple[int, int], end: int
) -> Iterator[Subheaders]:
    """Yields the possible readings of the subheaders, the likeliest first.

    There is more than one reading only if there is a colour map, on whose length readers disagree;
    a reading that ends exactly at the first frame comes first. As an exception, a file with only
    the flag "source" and its frames at byte 288 has a comment of 256 bytes instead.

    Args:
      path: the file's path, for errors.
      data: the file's bytes.
      flags: the header's flags.
      shape: the header's rows and columns.
      end: byte offset of the first frame, at most the file's length.

    Raises:
      ValueError: no reading fits; the message names the file and the byte.
    """
    if flags == SOURCE and end == _HEADER_BYTES + 256:
        text = data[_HEADER_BYTES:end].tobytes()
        yield Subheaders(None, None, _text(text), None, 0, None, None, end)
        return
    found, errors = [], []
    for colour_bytes in _COLOUR_BYTES if flags & COLOURS else (0,):
        try:
            found.append(_read(_Cursor(path, data, end), flags, shape, colour_bytes))
        except ValueError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    yield from sorted(found, key=lambda parts: parts.end != end)


class _Cursor:
    """Reads forward, never beyond the start of the first frame."""

    def __init__(self, path: Path, data: np.ndarray, end: int):
        self.path, self.at = path, _HEADER_BYTES
        self._data, self._end = data, end

    def take(self, count: int, what: str) -> bytes:
        if count > self._end - self.at:
            raise ValueError(
                f"{self.path}: byte {self.at}: {what} of {count} bytes reaches beyond the start of "
                f"the frames at byte {self._end}"
            )
        start, self.at = self.at, self.at + count
        return self._data[start : self.at].tobytes()

    def integers(self, count: int, what: str) -> tuple[int, ...]:
        return struct.unpack(f">{count}i", self.take(4 * count, what))

    def floats(self, count: int, what: str) -> tuple[float, ...]:
        return struct.unpack(f">{count}f", self.take(4 * count, what))

    def string(self, what: str) -> str:
        (length,) = struct.unpack(">I", self.take(4, f"length of the {what}"))
        return _text(self.take(length + -length % 4, what)[:length])


def _text(content: bytes) -> str:
    return content.decode("latin-1").rstrip("\0 ")


def _read(cursor: _Cursor, flags: int, shape: tuple[int, int], colour_bytes: int) -> Subheaders:
    return Subheaders(
        source=_source(cursor) if flags & SOURCE else None,
        colours=cursor.take(colour_bytes, "colour map") if flags & COLOURS else None,
        comment=cursor.string("comment") if flags & COMMENT else None,
        bands=_bands(cursor, shape) if flags & BANDS else None,
        footer_flags=cursor.integers(1, "footer flags")[0] if flags & FOOTERS else 0,
        ranging=cursor.floats(6, "ranging subheader") if flags & RANGING else None,
        hyperbands=_hyperbands(cursor) if flags & HYPERBANDS else None,
        end=cursor.at,
    )


def _source(cursor: _Cursor) -> Source:
    return Source(
        numbers=cursor.integers(11, "source subheader"),
        location=cursor.string("capture location"),
        sensor=cursor.string("sensor name"),
        digitizer=cursor.string("digitizer name"),
        fov_deg=cursor.floats(2, "field of view"),
        samples_per_dwell=cursor.integers(1, "samples per dwell")[0],
    )


def _bands(cursor: _Cursor, shape: tuple[int, int]) -> tuple[Band, ...]:
    cursor.string("name of the bands")
    at = cursor.at
    (count,) = cursor.integers(1, "number of bands")
    if not 1 <= count <= _BAND_SLOTS:
        raise ValueError(
            f"{cursor.path}: byte {at}: number of bands: got {count}, wanted 1 to {_BAND_SLOTS}"
        )
    bands = []
    for number in range(_BAND_SLOTS):  # all slots are present, whether used or not
        name, at = cursor.string("name of a band"), cursor.at
        (image_type,) = cursor.integers(1, "type of a band")
        if number < count:
            bands.append(Band(name, dtype_of(image_type, cursor.path, at), *shape))
    return tuple(bands)


def _hyperbands(cursor: _Cursor) -> tuple[Band, ...]:
    cursor.string("name of the hyperbands")
    at = cursor.at
    (count,) = cursor.integers(1, "number of hyperbands")
    if count < 1:
        raise ValueError(f"{cursor.path}: byte {at}: number of hyperbands: got {count}")
    bands = []
    for _ in range(count):  # a wrong count fails at the first frame
        name, at = cursor.string("name of a hyperband"), cursor.at
        image_type, columns, rows = cursor.integers(3, "type and size of a hyperband")
        if min(rows, columns) < 1:
            raise ValueError(
                f"{cursor.path}: byte {at + 4}: a hyperband of {columns} columns and {rows} rows"
            )
        bands.append(Band(name, dtype_of(image_type, cursor.path, at), rows, columns))
    return tuple(bands)


def dtype_of(image_type: int, path: Path, at: int) -> np.dtype:
    """Returns the big-endian dtype of an image type.

    Raises:
      ValueError: the type is unknown; the message names the file and the byte ``at``.
    """
    if image_type not in DTYPES:
        raise ValueError(
            f"{path}: byte {at}: image type: got {image_type}, wanted one of {sorted(DTYPES)}"
        )
    return DTYPES[image_type]
