"""TIFF files, decoded by Pillow or, for types that it lacks, by tifffile.

Both apply some tags to some types only: Pillow inverts white-is-zero in images of up to 8 bits,
reads signed bytes as unsigned ones and 32 unsigned bits as signed ones, and swaps the bytes of
compressed big-endian numbers once too often unless they are unsigned. The tags are therefore
checked and applied here, and the decoders get a file with one directory, of the tags that they
need, in which gray numbers are called unsigned and black-is-zero. What an image ``[h, w, c]`` of
recorded values cannot represent is refused.
"""

import html
import io
import math
import re
import struct
from typing import NamedTuple

import numpy as np
from PIL import UnidentifiedImageError

from jaxatr.data.decoder import directory as tags
from jaxatr.data.decoder import jpeg, pillow
from jaxatr.data.decoder.compression import (
    FLOAT_PREDICTOR,
    PACKED,
    PREDICTED,
    UNCOMPRESSED,
    unpack_segments,
    unpacked_decoder,
)
from jaxatr.data.decoder.directory import START, Directory, directories
from jaxatr.data.decoder.header import (
    MOST_BANDS,
    Header,
    ImageError,
    check_parts,
    too_many_bands,
    too_wide,
)

_GDAL = re.compile(r'<Item name="DESCRIPTION" sample="(\d{1,4})" role="description">([^<]*)</Item>')

__all__ = ["START", "band_names", "header"]

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _INKS, _YCBCR, _LAB = 0, 1, 2, 3, 5, 6, 8
_COLOURS: dict[int, int] = {
    _WHITE_IS_ZERO: 1,
    _BLACK_IS_ZERO: 1,
    _RGB: 3,
    _PALETTE: 1,
    _INKS: 4,
    _YCBCR: 3,
    _LAB: 3,
}
"""Numbers of colours by PhotometricInterpretation."""
_UNSIGNED, _SIGNED, _FLOAT, _COMPLEX_FLOAT = 1, 2, 3, 6
_KINDS = {
    _UNSIGNED: (1, 2, 4, 8, 12, 16, 32, 64),
    _SIGNED: (8, 16, 32, 64),
    _FLOAT: (16, 32, 64),
    _COMPLEX_FLOAT: (64, 128),
}
_CODES = {_SIGNED: "i", _FLOAT: "f"}
_ASSOCIATED, _UNASSOCIATED = 1, 2
_OLD_JPEG, _JPEG = 6, 7
_BIG_BIG_ENDIAN = b"MM\0+"
_TURNED_BITS = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ROOM = 1 << 26
"""Bytes that the tiles of a page may have in any case."""
_SHARED = 1 << 24  # bytes that strips or tiles may have in common with others


class _Facts(NamedTuple):
    """The checked tags of a directory."""

    height: int
    width: int
    bits: int
    kind: int
    photometric: int
    compression: int
    samples: int
    planar: bool
    extra: tuple[int, ...]
    turned_bits: bool
    """Whether the first bit of a byte is its lowest."""
    by_float: bool
    """Whether the compressor was given the differences of floats, and has to know of them."""

    @property
    def alpha(self) -> bool:
        """Whether the last sample of a pixel is alpha."""
        return bool(self.extra) and self.extra[-1] in (_ASSOCIATED, _UNASSOCIATED)

    @property
    def further(self) -> int:
        """Number of bands beside the colours."""
        return len(self.extra) - self.alpha

    @property
    def bands(self) -> int:
        """Number of bands that are read."""
        coloured = self.photometric in (_PALETTE, _INKS)
        return 3 if coloured else _COLOURS[self.photometric] + self.further


def header(content: bytes) -> Header:
    """Reads the header.

    Raises:
      ImageError: the file is damaged, has several pages, or holds what an image cannot represent.
    """
    pages = []
    for one in directories(content):
        pages += [one] if one.is_page else []
        if len(pages) > 1:
            raise ImageError("holds several pages; one image per file is expected")
    if not pages:
        raise ImageError("holds only reduced copies or masks of an image")
    (page,) = pages
    facts = _checked(page)
    segments = _segments(content, page, facts)
    turned = page.number(tags.ORIENTATION, 1)
    passes = 1
    if facts.compression == _JPEG:
        passes = max(map(jpeg.scans, segments.stored))
    elif facts.compression == _OLD_JPEG:
        passes = max(1, content.count(b"\xff\xda"))
    inverted = facts.photometric == _WHITE_IS_ZERO
    changed = {tags.PHOTOMETRIC: _BLACK_IS_ZERO} if inverted else {}
    unknown = segments.absent or facts.bits > 32  # to Pillow
    if facts.kind in _CODES and facts.samples == 1 and not (unknown or facts.by_float):
        changed[tags.FORMAT] = _UNSIGNED
    if facts.alpha and not facts.further:  # or Pillow would divide the colours by it
        changed[tags.EXTRA] = _UNASSOCIATED
    if facts.compression not in PREDICTED:
        changed[tags.PREDICTOR] = 1  # libtiff passes over any other; tifffile does not
    if facts.samples == 1:
        changed[tags.PLANAR] = 1  # one plane is both; Pillow knows few types of 2
    plain = page.alone(changed)

    def read() -> np.ndarray:
        values = _values(plain, facts, segments, page)
        if tags.FORMAT in changed:
            values = values.view(f"{_CODES[facts.kind]}{facts.bits // 8}")
        if values.shape[:2] != (facts.height, facts.width):
            raise ImageError(f"got pixels of shape {list(values.shape)}")
        if inverted and facts.bits <= 16:  # fewer than 8 bits are spread over 8
            values = values.dtype.type((1 << max(facts.bits, 8)) - 1) - values
        elif inverted:  # float32 has too few digits for the difference to the largest number
            values = -values.astype(np.float64)
        return _turned(values, turned)

    height, width = facts.height, facts.width
    size = (width, height) if turned in (5, 6, 7, 8) else (height, width)
    return Header(*size, read, passes, facts.bands)


def band_names(content: bytes) -> tuple[str, ...]:
    """Returns the names of the bands in GDAL's metadata of the first page; none if it has none."""
    try:
        text = next((page.gdal for page in directories(content) if page.is_page), "")
    except (ValueError, struct.error):  # a damaged file is reported where its pixels are read
        return ()
    found = {int(sample): html.unescape(name) for sample, name in _GDAL.findall(text)}
    return tuple(
        found.get(place, f"band {place + 1}") for place in range(max(found, default=-1) + 1)
    )


def _checked(page: Directory) -> _Facts:
    photometric = page.number(tags.PHOTOMETRIC, -1)
    if photometric not in _COLOURS:
        got = photometric if photometric >= 0 else "missing"
        raise ImageError(
            f"a TIFF whose PhotometricInterpretation is {got}, "
            "wanted gray, RGB, a palette, CMYK, YCbCr or CIELab"
        )
    facts = _Facts(
        height=page.number(tags.HEIGHT, 0),
        width=page.number(tags.WIDTH, 0),
        bits=page.common(tags.BITS, 1),
        kind=page.common(tags.FORMAT, _UNSIGNED),
        photometric=photometric,
        compression=page.number(tags.COMPRESSION, UNCOMPRESSED),
        samples=page.number(tags.SAMPLES, 1),
        planar=page.number(tags.PLANAR, 1) == 2,
        extra=page.numbers(tags.EXTRA),
        turned_bits=page.number(tags.FILL_ORDER, 1) == 2,
        by_float=page.number(tags.PREDICTOR, 1) == FLOAT_PREDICTOR
        and page.number(tags.COMPRESSION, UNCOMPRESSED) in PREDICTED,
    )
    if not (facts.height and facts.width):
        raise ValueError("a damaged TIFF: it states no size")
    if facts.bits not in _KINDS.get(facts.kind, ()):
        raise ImageError(
            f"a TIFF of samples of {facts.bits} bits with SampleFormat {facts.kind}, wanted whole "
            "numbers, floats or complex floats of a usual width"
        )
    if photometric == _WHITE_IS_ZERO and facts.kind != _UNSIGNED:
        raise ImageError(
            "a TIFF in which 0 is white and the samples are signed, which does not say what is "
            "black: save it with 0 as black"
        )
    if photometric in (_PALETTE, _INKS, _YCBCR, _LAB) and (facts.kind, facts.bits > 8) != (
        _UNSIGNED,
        False,
    ):
        raise ImageError(
            f"a TIFF of {facts.bits} bits per sample with PhotometricInterpretation {photometric}, "
            "wanted 8 bits at most"
        )
    if photometric == _RGB and facts.kind == _UNSIGNED and facts.bits == 12:
        raise too_wide("TIFF")
    facts = facts._replace(extra=_extra(facts))
    if facts.further and facts.bits < 8:
        raise ImageError(f"a TIFF of {facts.bands} bands of {facts.bits} bits, wanted 8 or more")
    if facts.bands > MOST_BANDS:
        raise too_many_bands(facts.bands)
    if photometric == _INKS and page.number(tags.INKS, 1) != 1:
        raise ImageError("a TIFF of inks other than CMYK")
    if photometric == _YCBCR and facts.compression not in (_JPEG, _OLD_JPEG):
        usual = page.fractions(tags.COEFFICIENTS) in ([], [0.299, 0.587, 0.114])
        full = page.fractions(tags.REFERENCE) in ([], [0, 255, 128, 255, 128, 255])
        if page.numbers(tags.SUBSAMPLING, (2, 2)) != (1, 1) or not (usual and full):
            raise ImageError(
                "a TIFF of YCbCr that is subsampled or of an unusual range: save it as RGB"
            )
    return facts


def _extra(facts: _Facts) -> tuple[int, ...]:
    """Returns the kinds of the samples beyond the colours, 0 (a band) where none is stated.

    Accepted are further bands beside gray and RGB, and at last an alpha plane.
    """
    if facts.samples > MOST_BANDS + 1:
        raise too_many_bands(facts.samples)
    further = facts.samples - _COLOURS[facts.photometric]
    extra = facts.extra or (0,) * max(further, 0)
    banded = facts.photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB)
    known = not any(extra[:-1]) and max(extra, default=0) <= _UNASSOCIATED
    if further != len(extra) or not known or not (banded or all(extra)):
        raise ImageError(
            f"a TIFF of {facts.samples} samples per pixel (ExtraSamples: "
            f"{list(facts.extra) or 'none'}), wanted bands beside gray or RGB, and at most an "
            "alpha plane, the last one"
        )
    return extra


class _Segments(NamedTuple):
    """The strips or tiles of a page.

    Attributes:
      stored: each as it is stored.
      sizes: number of bytes of each, unpacked.
      unpacked: number of bytes of all that the page should have, unpacked.
      absent: numbers of those that a sparse file leaves out.
    """

    stored: list[memoryview]
    sizes: list[int]
    unpacked: int
    absent: frozenset[int]


def _segments(content: bytes, page: Directory, facts: _Facts) -> _Segments:
    """Returns the strips or tiles, after checking their stated size.

    Raises:
      ImageError: they would be unpacked to more than the page needs.
    """
    height, width = facts.height, facts.width
    if tiled := bool(page.numbers(tags.TILE_WIDTH)):
        rows, columns = page.number(tags.TILE_HEIGHT, 0), page.number(tags.TILE_WIDTH, 0)
    else:
        rows, columns = min(height, page.number(tags.STRIP_ROWS, height)), width
    if not (rows and columns):
        raise ValueError("a damaged TIFF: its strips or tiles are empty")
    pixel = facts.bits * facts.samples / 8
    wanted = math.ceil(height / rows) * math.ceil(width / columns)
    # All together, as a thin image may have many tiles, each of which is mostly outside of it.
    if tiled and wanted * rows * columns * pixel > max(_ROOM, 4 * height * width * pixel):
        raise ImageError(f"a TIFF of {height}x{width} pixels in {wanted} tiles of {rows}x{columns}")
    wanted *= facts.samples if facts.planar else 1
    check_parts(wanted, "strips or tiles of a TIFF")
    starts = page.numbers(tags.TILES if tiled else tags.STRIPS)
    counts = page.numbers(tags.TILE_BYTES if tiled else tags.STRIP_BYTES)
    if not starts or len(starts) > wanted:
        raise ValueError(f"a damaged TIFF: {len(starts)} strips or tiles, wanted {wanted}")
    if not counts and len(starts) == 1:  # of some old files
        counts = (len(content) - starts[0],)
    view, across = memoryview(content), columns * (1 if facts.planar else facts.samples)
    row, down = math.ceil(across * facts.bits / 8), math.ceil(height / rows)
    # The last strip of a plane has the rows that are left.
    left = [rows if tiled else min(rows, height - n % down * rows) for n in range(len(starts))]
    places = list(zip(starts, counts, strict=False))
    if sum(count for _, count in set(places)) > 2 * len(content) + _SHARED:
        raise ValueError("a damaged TIFF: its strips or tiles share their bytes")
    return _Segments(
        [view[start : start + count] for start, count in places],
        [row * each for each in left],
        row * (rows * wanted if tiled else height * (facts.samples if facts.planar else 1)),
        frozenset(number for number, place in enumerate(places) if place == (0, 0)),
    )


def _values(content: bytes, facts: _Facts, segments: _Segments, page: Directory) -> np.ndarray:
    """Decodes the pixels as they are recorded, ``[h, w]`` or ``[h, w, c]``."""
    gray = facts.photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO)
    wide = facts.photometric == _RGB and facts.bits > 8  # of which Pillow keeps the upper bits
    try:
        # Pillow does not know all of the first kind, drops bands of the third, does not turn the
        # bits of the fourth, reads the header as the pixels that the fifth leaves out, and warns of
        # the last before it gives up.
        turned = facts.turned_bits and facts.planar and facts.samples > 1
        unknown = turned or segments.absent or content.startswith(_BIG_BIG_ENDIAN)
        if (gray and facts.planar and facts.extra) or wide or facts.further or unknown:
            raise UnidentifiedImageError
        image = pillow.opened(content, ("TIFF",))
    except UnidentifiedImageError:
        if facts.photometric not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB):  # not applied below
            raise ImageError(
                f"a TIFF of {facts.bits} bits per sample with PhotometricInterpretation "
                f"{facts.photometric} in an unusual layout: save it as RGB"
            ) from None
        values = _by_tifffile(content, facts, segments, page.nodata if segments.absent else 0.0)
        if not facts.alpha:
            return values
        alpha, values = values[:, :, -1], values[:, :, :-1]
    else:
        values = pillow.to_array(image)
        if facts.by_float and content[:1] == b"M":
            return values.byteswap()  # which libtiff has swapped already, as Pillow does not know
        if not facts.extra:
            return values.view(np.uint32) if values.dtype == np.int32 else values
        alpha = np.array(image.getchannel("A"))
    opaque = alpha.dtype.kind in "ui" and np.all(alpha == np.iinfo(alpha.dtype).max)
    if facts.extra[-1] == _ASSOCIATED and not opaque:
        raise ImageError(
            "a TIFF whose colours are multiplied by alpha: save it with plain colours or none"
        )
    return values


def _by_tifffile(content: bytes, facts: _Facts, segments: _Segments, missing: float) -> np.ndarray:
    import tifffile  # slow to import

    if facts.compression not in (UNCOMPRESSED, *PACKED):
        raise ImageError(
            f"a TIFF of {facts.samples} samples of {facts.bits} bits per pixel with compression "
            f"{facts.compression}, wanted Deflate, LZW or none"
        )
    if facts.bits in (2, 4, 12):
        raise ImageError(
            f"a TIFF of {facts.bits} bits per sample in an unusual layout: save it with 8 or 16"
        )
    stored = segments.stored
    if facts.turned_bits:  # before they are unpacked, which tifffile would not know
        stored = [memoryview(bytes(one).translate(_TURNED_BITS)) for one in stored]
    sizes, absent = segments.sizes, segments.absent
    there = [number for number in range(len(stored)) if number not in absent]
    found = iter(
        unpack_segments([stored[n] for n in there], facts.compression, [sizes[n] for n in there])
    )
    pieces = [bytes(size) if n in absent else next(found) for n, size in enumerate(sizes)]
    # tifffile fills what is missing with zeros.
    if (unpacked := sum(map(len, pieces))) < segments.unpacked:
        raise ValueError(f"a truncated TIFF: {unpacked} bytes, wanted {segments.unpacked}")
    with tifffile.TiffFile(io.BytesIO(content)) as file:
        page = file.pages[0]
        setattr(page, "fillorder", 1)  # noqa: B010 (a frame, which is no first page, lacks it)
        decode = unpacked_decoder(page)
        values = np.empty(page.shaped, page.dtype)
        if values.dtype.kind in "ui":  # which may not hold the number that GDAL names
            held = np.iinfo(values.dtype)
            missing = missing if held.min <= missing <= held.max else 0.0
        for number, piece in enumerate(pieces):
            part, (plane, _, y, x, _), shape = decode(piece, number)
            place = values[plane, :, y : y + shape[1], x : x + shape[2]]
            place[...] = part[:, : place.shape[1], : place.shape[2]]
            if number in absent:
                place[...] = missing
    values = values[:, 0, :, :, 0].transpose(1, 2, 0) if facts.planar else values[0, 0]
    values = values * np.uint8(255) if values.dtype == bool else values
    return values[:, :, 0] if facts.samples == 1 else values


def _turned(values: np.ndarray, orientation: int) -> np.ndarray:
    """Turns an image such that its first row is the top and its first column the left."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):  # the first row, or then column, is at the bottom
        values = values[::-1]
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return values
