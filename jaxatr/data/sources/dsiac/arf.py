"""Memory-mapped reader of ARF imagery of every type, which checks the layout by the file's size."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxatr.data.sources.dsiac.subheaders import (
    KNOWN_FLAGS,
    Band,
    Subheaders,
    dtype_of,
    read_subheaders,
)
from jaxatr.typing import Shaped

_HEADER = struct.Struct(">8I")
_MAGIC, _VERSION = 0xBBBBBAAD, 2
_MULTIBAND, _HYPERBAND = 10, 13
_FOOTER_BYTES = (40, 96)  # for the two footer flags
_FOOTER = struct.Struct(">10i")


@dataclass(frozen=True)
class Footer:
    """The footer after a frame.

    Attributes:
      numbers: x, y, azimuth, elevation, year, day of the year, hour, minute, second, millisecond,
        or None if the file has no such footer. The type, signed integers, is inferred.
      rest: the further 96 bytes of unknown meaning, or empty.
    """

    numbers: tuple[int, ...] | None
    rest: bytes


@dataclass(frozen=True)
class Arf:
    """An open ARF file, with no pixels in memory.

    Attributes:
      path: the file's path.
      frames: number of frames.
      bands: the images of each frame; more than one only in multiband and hyperband files.
      offset: byte offset of the first frame.
      footer_bytes: size of the footer after each frame.
      subheaders: the subheaders before the frames.
      note: a remark if the file's size contradicts its flags, or empty.
    """

    path: Path
    frames: int
    bands: tuple[Band, ...]
    offset: int
    footer_bytes: int
    subheaders: Subheaders
    note: str
    _data: np.ndarray

    @property
    def stride(self) -> int:
        """The number of bytes from the start of one frame to the next."""
        return sum(band.nbytes for band in self.bands) + self.footer_bytes

    def frame(self, number: int, band: int = 0) -> Shaped[np.ndarray, "rows columns"]:
        """Returns a read-only view of one image, big-endian as in the file.

        Args:
          number: number of the frame, from 0.
          band: number of the image within the frame.

        Raises:
          IndexError: there is no such frame or band.
        """
        found = self.bands[band]
        before = sum(other.nbytes for other in self.bands[:band])
        start = self._start(number) + before
        return (
            self._data[start : start + found.nbytes]
            .view(found.dtype)
            .reshape(found.rows, found.columns)
        )

    def footer(self, number: int) -> Footer | None:
        """Reads the footer of a frame; None if the file has none.

        Args:
          number: number of the frame, from 0.

        Raises:
          IndexError: there is no such frame.
        """
        end = self._start(number) + self.stride
        content = self._data[end - self.footer_bytes : end].tobytes()
        if self.footer_bytes < _FOOTER.size:
            return None
        if self.footer_bytes == _FOOTER_BYTES[1]:
            return Footer(None, content)
        return Footer(_FOOTER.unpack_from(content), content[_FOOTER.size :])

    def _start(self, number: int) -> int:
        if not 0 <= number < self.frames:
            raise IndexError(f"{self.path}: frame {number} of {self.frames}")
        return self.offset + number * self.stride


def open_arf(path: Path) -> Arf:
    """Opens an ARF file and checks that its header accounts for its exact size.

    Frame n starts at ``offset + n · (bytes of its images + footer)``. The footer's size is given by
    the flags or, if that contradicts the file's size, by the file's size, because some files have
    incomplete flags.

    Raises:
      ValueError: the file is not an ARF file, or its header, subheaders and size contradict each
        other; the message names the file and the byte.
      OSError: the file cannot be opened.
    """
    size = path.stat().st_size
    if size < _HEADER.size:
        raise ValueError(f"{path}: byte {size}: the file ends within the header of 32 bytes")
    data = np.asarray(np.memmap(path, np.uint8, mode="r"))
    magic, version, rows, columns, image_type, frames, offset, flags = _HEADER.unpack(
        data[: _HEADER.size].tobytes()
    )
    _check(path, 0, magic == _MAGIC, f"not an ARF file: starts with {magic:#010x}, not {_MAGIC:#x}")
    _check(path, 4, version == _VERSION, f"version: got {version}, wanted {_VERSION}")
    _check(path, 8, rows > 0, "rows: got 0")
    _check(path, 12, columns > 0, "columns: got 0")
    _check(path, 20, frames > 0, "number of frames: got 0")
    inside = _HEADER.size <= offset <= size
    _check(path, 24, inside, f"first frame: got byte {offset} of a file of {size} bytes")
    _check(path, 28, not flags & ~KNOWN_FLAGS, f"flags: got {flags:#x}, some of them unknown")
    errors = []
    for parts in read_subheaders(path, data, flags, (rows, columns), offset):
        try:
            bands = _images(path, image_type, (rows, columns), parts)
            footer, note = _footer_bytes(path, size, offset, frames, bands, parts.footer_flags)
        except ValueError as error:
            errors.append(error)
        else:
            return Arf(path, frames, bands, offset, footer, parts, note, data)
    raise errors[0]


def _check(path: Path, at: int, holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(f"{path}: byte {at}: {message}")


def _images(
    path: Path, image_type: int, shape: tuple[int, int], parts: Subheaders
) -> tuple[Band, ...]:
    if image_type not in (_MULTIBAND, _HYPERBAND):
        return (Band("", dtype_of(image_type, path, 16), *shape),)
    bands = parts.bands if image_type == _MULTIBAND else parts.hyperbands
    if bands is None:
        raise ValueError(f"{path}: byte 28: image type {image_type} without band subheader")
    return bands


def _footer_bytes(
    path: Path, size: int, offset: int, frames: int, bands: tuple[Band, ...], flags: int
) -> tuple[int, str]:
    images = sum(band.nbytes for band in bands)
    announced = sum(length for bit, length in enumerate(_FOOTER_BYTES) if flags >> bit & 1)
    for footer in (announced, 0, *_FOOTER_BYTES, sum(_FOOTER_BYTES)):
        if offset + frames * (images + footer) == size:
            note = f"footers of {footer} bytes by the file's size, {announced} by its flags"
            return footer, "" if footer == announced else note
    end = offset + frames * (images + announced)
    raise ValueError(
        f"{path}: byte {min(end, size)}: {frames} frames of {images} bytes and footers of "
        f"{announced} bytes, from byte {offset} on, end at byte {end}; the file ends at byte {size}"
    )
