"""Uncompressed images of NITF 2.0, 2.1 and NSIF, of which sarpy reads the header.

sarpy's own reader of pixels takes the first bytes of an image of one block, whatever the size of
the block or of a mask before it, takes the list of blocks with transparent pixels for the list of
recorded blocks, and knows neither 1 nor 12 bits.
"""

import math
from typing import Any

import numpy as np

from jaxatr.data.decoder import ImageError
from jaxatr.data.decoder.header import MOST_BANDS, check_parts, too_many_bands

PLAIN = ("NC", "NM")
"""Codes of images without compression; the latter have a mask, which says where blocks are."""

_ABSENT = 0xFFFFFFFF
_KINDS = {"INT": "u", "B": "u", "SI": "i", "R": "f", "C": "c"}
_WIDTHS = {"u": (8, 16, 32, 64), "i": (8, 16, 32, 64), "f": (32, 64), "c": (64, 128)}
_PARTS = ("IQ", "QI", "MP", "PM")


def pixels(header: Any, content: bytes) -> np.ndarray:
    """Returns the recorded values ``[h, w, c]`` of an image without compression.

    Bands that are the parts of a complex one become it, and a look-up table is applied.

    Args:
      header: sarpy's header of the image, whose size has been checked.
      content: the image's data, with its mask if it has one.

    Raises:
      ImageError: the values are of a type that is not known.
      ValueError: the data are damaged.
    """
    bands = len(header.Bands)
    if bands > 2 * MOST_BANDS:  # each two may be the parts of one
        raise too_many_bands(bands)
    height, width = header.NPPBV or header.NROWS, header.NPPBH or header.NCOLS
    if header.NBPC * height < header.NROWS or header.NBPR * width < header.NCOLS:
        raise ValueError("the blocks do not cover the image")
    # One block holds all bands, or (S) each band has blocks of its own. `shape` is in the file's
    # order, and `order` has the axes of row, column and band in it.
    shape, order = {
        "B": ((bands, height, width), (1, 2, 0)),
        "P": ((height, width, bands), (0, 1, 2)),
        "R": ((height, bands, width), (0, 2, 1)),
        "S": ((1, height, width), (1, 2, 0)),
    }[header.IMODE]
    planes, across = bands if header.IMODE == "S" else 1, header.NBPR
    count = planes * header.NBPC * across
    check_parts(count, "blocks of a NITF")
    dtype, bits = _type(header)
    size = math.ceil(math.prod(shape) * bits / 8)
    starts, pad = np.arange(count) * size, 0
    if header.IC == "NM":
        mask = header.mask_subheader
        content = content[mask.IMDATOFF :]
        if mask.BMR is not None:
            starts = np.asarray(mask.BMR, np.int64).reshape(-1)
        if mask.TPXCD:
            pad = _unpacked(mask.TPXCD.rjust(-(-bits // 8), b"\0"), dtype, 8 * dtype.itemsize)[0]
    if len(starts) != count:
        raise ValueError(f"{len(starts)} places of blocks, wanted {count}")
    values = np.full((header.NROWS, header.NCOLS, bands), pad, dtype.newbyteorder("="))
    for number, start in enumerate(starts):
        if start == _ABSENT:
            continue
        stored = content[start : start + size]
        if len(stored) < size:
            raise ValueError(f"truncated: block {number} has {len(stored)} bytes, wanted {size}")
        block = _unpacked(stored, dtype, bits)[: math.prod(shape)].reshape(shape).transpose(order)
        plane, place = divmod(number, header.NBPC * across)
        top, left = place // across * height, place % across * width
        window = values[top : top + height, left : left + width]
        if header.IMODE == "S":
            window = window[:, :, plane : plane + 1]
        window[...] = block[: window.shape[0], : window.shape[1]]
    return _looked_up(header, _complex(header, values))


def is_beyond_sarpy(header: Any) -> bool:
    """Whether sarpy would read the pixels of an image from wrong places."""
    if header.IC not in PLAIN:
        return False
    exact = header.NPPBV in (0, header.NROWS) and header.NPPBH in (0, header.NCOLS)
    return header.IC == "NM" or (header.NBPC * header.NBPR == 1 and not exact)


def _type(header: Any) -> tuple[np.dtype, int]:
    """Returns the type of the values and the number of bits that the file has of each."""
    kind, bits = _KINDS.get(header.PVTYPE, ""), header.NBPP
    if kind == "u" and 1 <= bits <= 16:
        return np.dtype(f">u{1 if bits <= 8 else 2}"), bits
    if bits not in _WIDTHS.get(kind, ()):
        raise ImageError(
            f"values of {bits} bits of type {header.PVTYPE}, wanted whole numbers or floats of a "
            "usual width"
        )
    return np.dtype(f">{kind}{bits // 8}"), bits


def _unpacked(stored: bytes, dtype: np.dtype, bits: int) -> np.ndarray:
    """Returns the values of a block, of which the first bit of a byte is its highest."""
    if bits == 8 * dtype.itemsize:
        return np.frombuffer(stored, dtype)
    each = np.unpackbits(np.frombuffer(stored, np.uint8))
    each = each[: len(each) // bits * bits].reshape(-1, bits).astype(dtype)
    return each @ (1 << np.arange(bits)[::-1]).astype(dtype)


def _complex(header: Any, values: np.ndarray) -> np.ndarray:
    """Makes one complex band of each two that are its parts."""
    names = [band.ISUBCAT.strip() for band in header.Bands]
    parts = "".join(names[:2])
    if parts not in _PARTS or names != list(parts) * (len(names) // 2):
        if header.PVTYPE == "B":
            return values.astype(bool)
        return values
    first, second = (values[:, :, place::2] for place in (0, 1))
    if parts in ("QI", "PM"):
        first, second = second, first
    if "I" in parts:
        if header.PVTYPE not in ("SI", "R"):
            raise ImageError(f"parts I and Q of type {header.PVTYPE}, wanted signed ones")
        return first + 1j * second.astype(np.float64)
    if first.dtype.kind == "u":  # a whole turn is divided into as many steps as there are numbers
        second = second * (2 * np.pi / 2.0**header.NBPP)
    return first * np.exp(1j * second.astype(np.float64))


def _looked_up(header: Any, values: np.ndarray) -> np.ndarray:
    """Applies the look-up table of an image of one band, if it has one."""
    tables = [band.LUTD for band in header.Bands if band.LUTD is not None]
    if not tables:
        return values
    if len(header.Bands) != 1 or header.PVTYPE not in ("INT", "B"):
        raise ImageError("look-up tables of several bands, wanted one of a single band")
    table = np.atleast_2d(tables[0]).astype(np.uint8)
    if len(table) == 2:  # the upper and the lower bytes
        table = (table[:1].astype(np.uint16) << 8) | table[1:]
    places = values[:, :, 0].astype(np.int64)
    if places.max() >= table.shape[1]:
        raise ValueError(f"the look-up table ends at {table.shape[1]}, a pixel has {places.max()}")
    return table.T[places]
