"""The directories of a TIFF (version 6.0, and BigTIFF), whose entries are called tags."""

import struct
from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import NamedTuple

from jaxatr.data.decoder.header import ImageError

START = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER = 256, 257, 258, 259, 262, 266
STRIPS, ORIENTATION, SAMPLES, STRIP_ROWS, STRIP_BYTES, PLANAR = 273, 274, 277, 278, 279, 284
PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES = 317, 322, 323, 324, 325
INKS, EXTRA, FORMAT = 332, 338, 339
COEFFICIENTS, SUBSAMPLING, REFERENCE = 529, 530, 532
_GDAL, _NODATA = 42112, 42113
_NEW_KIND, _OLD_KIND = 254, 255
_REDUCED, _MASK, _DEPTH_MAP = 1, 4, 8
_OLD_REDUCED = 2
_PHOTOMETRIC_MASK = 4
# What decoders need: the above; options of fax; predictor; palette; JPEG's tables; LERC's options.
_FOR_PIXELS = (
    *(WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER, STRIPS, SAMPLES, STRIP_ROWS),
    *(
        STRIP_BYTES,
        PLANAR,
        292,
        293,
        PREDICTOR,
        320,
        TILE_WIDTH,
        TILE_HEIGHT,
        TILES,
        TILE_BYTES,
        INKS,
    ),
    *(EXTRA, FORMAT, 347, 512, 513, 514, 515, 517, 518, 519, 520, 521),
    *(COEFFICIENTS, SUBSAMPLING, REFERENCE, 50674),
)
_MOST_DIRECTORIES = 10_000
# Codes of struct, with the number of values in it: a rational has two.
_TYPES = {
    **{1: "B", 2: "s", 3: "H", 4: "L", 5: "LL", 6: "b", 7: "s", 8: "h", 9: "l", 10: "ll"},
    **{11: "f", 12: "d", 13: "L", 16: "Q", 17: "q", 18: "Q"},
}
_WHOLE = (1, 3, 4, 13, 16, 18)


class _Entry(NamedTuple):
    """An entry of a directory: its own bytes, and where its values are."""

    raw: bytes
    kind: int
    count: int
    at: int
    size: int


class Directory:
    """A directory, which describes one image."""

    def __init__(self, content: bytes | mmap, at: int):
        """Reads the entries, but not their values.

        Args:
          content: the file's content.
          at: position of the directory.

        Raises:
          ValueError: the directory is damaged, or has a tag for pixels twice.
        """
        self._content, self._order = content, "<" if content[:1] == b"I" else ">"
        self._big = content[2:4] in (b"+\0", b"\0+")
        word, entry = ("Q", "HHQ") if self._big else ("L", "HHL")
        count, start = self._unpacked("Q" if self._big else "H", at)
        length = 20 if self._big else 12
        if start + count * length > len(content):
            raise ValueError("a damaged TIFF: a directory reaches beyond the end of the file")
        self._entries: dict[int, _Entry] = {}
        for begin in range(start, start + count * length, length):
            (tag, kind, number), value = self._all(entry, begin)
            if tag not in (*_FOR_PIXELS, _NEW_KIND, _OLD_KIND, ORIENTATION, _GDAL, _NODATA):
                continue
            if tag in self._entries:
                raise ValueError(f"a damaged TIFF: tag {tag} occurs twice")
            size = number * struct.calcsize("=" + _TYPES.get(kind, "s"))
            if size > struct.calcsize("=" + word):
                value, _ = self._unpacked(word, value)
            if value + size > len(content):
                raise ValueError(f"a damaged TIFF: tag {tag} reaches beyond the end of the file")
            raw = content[begin : begin + length]
            self._entries[tag] = _Entry(raw, kind, number, value, size)
        self.next, _ = self._unpacked(word, start + count * length)

    def _all(self, code: str, at: int) -> tuple[tuple, int]:
        code = self._order + code
        return struct.unpack_from(code, self._content, at), at + struct.calcsize(code)

    def _unpacked(self, code: str, at: int) -> tuple[int, int]:
        (value,), end = self._all(code, at)
        return value, end

    @property
    def is_page(self) -> bool:
        """Whether this is an image of its own: no reduced copy, mask or depth map of another."""
        kind = self.number(_NEW_KIND, 0)
        return not (
            kind & (_REDUCED | _MASK | _DEPTH_MAP)
            or self.number(_OLD_KIND, 0) == _OLD_REDUCED
            or self.number(PHOTOMETRIC, -1) == _PHOTOMETRIC_MASK
        )

    def numbers(self, tag: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Returns the whole numbers of a tag.

        Raises:
          ValueError: its values are of another type.
        """
        if (entry := self._entries.get(tag)) is None:
            return default
        if entry.kind not in _WHOLE or not entry.count:
            raise ValueError(f"a damaged TIFF: tag {tag} holds no whole numbers")
        return self._all(f"{entry.count}{_TYPES[entry.kind]}", entry.at)[0]

    def number(self, tag: int, default: int) -> int:
        """Returns the single whole number of a tag.

        Raises:
          ValueError: it has several values, or one of another type.
        """
        first, *more = self.numbers(tag, (default,))
        if more:
            raise ValueError(f"a damaged TIFF: tag {tag} has {1 + len(more)} values, wanted one")
        return first

    def common(self, tag: int, default: int) -> int:
        """Returns the number that a tag states for every sample.

        Raises:
          ValueError: the samples differ.
        """
        values = self.numbers(tag, (default,))
        if len(set(values)) > 1:
            raise ImageError(f"a TIFF whose samples differ (tag {tag}: {list(values)[:9]})")
        return values[0]

    def fractions(self, tag: int) -> list[float]:
        """Returns the rational numbers of a tag; none if it is absent."""
        if (entry := self._entries.get(tag)) is None or entry.kind != 5:
            return []
        pairs = self._all("LL" * entry.count, entry.at)[0]
        return [a / (b or 1) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]

    @property
    def gdal(self) -> str:
        """The metadata of GDAL, an XML text; empty if there is none."""
        return self._text(_GDAL)

    @property
    def nodata(self) -> float:
        """The value of missing pixels according to GDAL; 0 if none is stated."""
        return float(self._text(_NODATA).strip("\0 ") or 0)

    def _text(self, tag: int) -> str:
        if (entry := self._entries.get(tag)) is None:
            return ""
        return self._content[entry.at : entry.at + entry.size].decode("utf-8", "replace")

    def alone(self, changed: Mapping[int, int]) -> bytes:
        """Returns the file with this directory only, reduced to the tags for the pixels.

        Args:
          changed: tags with other values or in addition, each a single number of 16 bits.
        """
        kept = {tag: one for tag, one in self._entries.items() if tag in _FOR_PIXELS}
        if sum(one.size for one in kept.values()) > len(self._content):
            raise ValueError("a damaged TIFF: its tags refer to the same bytes several times")
        short = self._order + ("HHQHxxxxxx" if self._big else "HHLHxx")
        entries = {tag: one.raw for tag, one in kept.items()}
        entries |= {tag: struct.pack(short, tag, 3, 1, value) for tag, value in changed.items()}
        raw = [one for _, one in sorted(entries.items())]
        count, word = ("Q", "Q") if self._big else ("H", "L")
        at = len(self._content) + len(self._content) % 2
        first = struct.pack(self._order + word, at)
        place = 8 if self._big else 4
        return b"".join(
            [
                *(self._content[:place], first, self._content[place + len(first) :]),
                bytes(at - len(self._content)),
                struct.pack(self._order + count, len(raw)),
                *raw,
                struct.pack(self._order + word, 0),
            ]
        )


def directories(content: bytes | mmap) -> Iterator[Directory]:
    """Yields a TIFF's directories in their order.

    Raises:
      ValueError: one is damaged, or there are too many.
    """
    order, big = "<" if content[:1] == b"I" else ">", content[2:4] in (b"+\0", b"\0+")
    (at,) = struct.unpack_from(order + ("Q" if big else "L"), content, 8 if big else 4)
    seen: set[int] = set()
    while at:
        if at in seen or len(seen) == _MOST_DIRECTORIES:
            raise ValueError("a damaged TIFF: its directories do not end")
        seen.add(at)
        directory = Directory(content, at)
        yield directory
        at = directory.next


def nodata(content: bytes) -> float | None:
    """Returns the value of missing pixels of a TIFF's first page; None if it states no number."""
    try:
        return next((page.nodata for page in directories(content) if page.is_page), None)
    except (ValueError, struct.error):  # a damaged file is reported where its pixels are read
        return None
