"""Compressed strips and tiles of TIFF files, unpacked within a bound."""

import lzma
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxatr.data.decoder import pillow
from jaxatr.data.decoder.header import ImageError

UNCOMPRESSED = 1
_PACK_BITS, _LZW, _ZSTANDARD = 32773, 5, 50000
_UNPACKERS = {
    8: zlib.decompressobj,
    32946: zlib.decompressobj,
    34925: partial(lzma.LZMADecompressor, memlimit=1 << 27),
}
"""Decompressors by the number of the compression."""
PACKED = (_LZW, _ZSTANDARD, _PACK_BITS, *_UNPACKERS)
"""Compressions of bytes, which :func:`unpack_segments` knows."""
PREDICTED = (_LZW, _ZSTANDARD, *_UNPACKERS)
"""Compressions that a predictor goes with."""
FLOAT_PREDICTOR = 3
_SLACK = 4096  # bytes beyond its size to which a strip or tile may unpack


def unpacked_decoder(page: Any) -> Callable[[bytes | memoryview, int], tuple]:
    """Returns tifffile's decoder of a page's strips or tiles, for unpacked ones.

    It undoes the predictor, also that of floats, for which tifffile needs a further library.
    """
    page.compression, by_float = UNCOMPRESSED, page.predictor == FLOAT_PREDICTOR
    if not by_float:
        return page.decode
    page.predictor = 1
    samples = page.samplesperpixel if page.planarconfig == 1 else 1
    size, order = page.dtype.itemsize, page.parent.byteorder
    across = samples * (page.tilewidth or page.imagewidth)

    def decode(piece: bytes | memoryview, number: int) -> tuple:
        steps = np.frombuffer(piece, np.uint8).reshape(-1, size * across // samples, samples)
        planes = np.cumsum(steps, axis=1, dtype=np.uint8).reshape(-1, size, across)
        values = np.ascontiguousarray(planes.swapaxes(1, 2)).view(f">f{size}")
        return page.decode(values.astype(f"{order}f{size}").tobytes(), number)

    return decode


def unpack_segments(
    stored: Sequence[bytes | memoryview], compression: int, sizes: Sequence[int]
) -> list[bytes | memoryview]:
    """Unpacks strips or tiles within a bound.

    Args:
      stored: the strips or tiles as they are stored.
      compression: number of the compression, one of :data:`PACKED` or none.
      sizes: number of bytes that each should have.

    Raises:
      ImageError: one has far more, or its compression needs a library that is not there.
      OSError: one is damaged, or has fewer (Deflate and LZMA: these are returned).
    """
    if compression not in PACKED or compression in _UNPACKERS:
        return [_unpacked(*one, compression) for one in zip(stored, sizes, strict=True)]
    places: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        places.setdefault(size, []).append(place)
    pieces: list[bytes | memoryview] = [b""] * len(stored)
    for size, found in places.items():  # of one size are all but the last of a plane
        unpacked = pillow.unpack_segments([stored[place] for place in found], compression, size)
        for number, place in enumerate(found):
            pieces[place] = unpacked[number * size : (number + 1) * size]
    return pieces


def _unpacked(stored: bytes | memoryview, size: int, compression: int) -> bytes | memoryview:
    most = 2 * size + _SLACK
    if (unpacker := _UNPACKERS.get(compression)) is not None:
        stored = unpacker().decompress(stored, most + 1)
    if len(stored) > most:
        raise ImageError("a TIFF with a strip or tile that unpacks to more than its size")
    return stored
