"""Images of scenes, of which windows are read without the rest where the file allows it."""

import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxatr.data import decoder
from jaxatr.data.decoder.directory import directories
from jaxatr.data.images import MissingImageError, decode_image
from jaxatr.files import MOST_BYTES, in_other_form, open_regular, read_regular
from jaxatr.typing import Shaped

_LARGEST = 1 << 28
"""Bytes of the largest strip or tile of a TIFF that is unpacked for a window."""

_PIXEL_SCALE, _TIEPOINT, _TRANSFORM, _NODATA = 33550, 33922, 34264, 42113
_KEYS, _GEOGRAPHIC, _PROJECTED, _USER_DEFINED = 34735, 2048, 3072, 32767
_WORLD = {".tif": ".tfw", ".tiff": ".tfw", ".png": ".pgw", ".jpg": ".jgw", ".jpeg": ".jgw"}


_Pixels: TypeAlias = Callable[[slice, slice], np.ndarray]
"""Reads pixels ``[h, w, c]`` by rows and columns, which are within the image."""


class SceneImage(NamedTuple):
    """An image that is open for reading.

    Attributes:
      name: its name in messages.
      height: number of rows.
      width: number of columns.
      pixels: reads a part of it.
      transform: ``[2, 3]``, from x and y in pixels to map coordinates; None if it has none.
      epsg: number of the coordinates' reference system; None if it is not known.
    """

    name: str
    height: int
    width: int
    pixels: _Pixels
    transform: Shaped[np.ndarray, "2 3"] | None = None
    epsg: int | None = None

    def window(self, x0: int, y0: int, x1: int, y1: int) -> Shaped[np.ndarray, "h w c"]:
        """Reads a window; what is beyond the image is 0.

        Raises:
          ImageError: the file is damaged, or the image is not one of gray or colour values.
        """
        inside = [
            slice(min(max(low, 0), length), max(min(high, length), 0))
            for low, high, length in ((y0, y1, self.height), (x0, x1, self.width))
        ]
        if any(part.start >= part.stop for part in inside):
            raise ValueError(
                f"{self.name}: the window {x0, y0, x1, y1} is outside of "
                f"{self.width}x{self.height} pixels"
            )
        part = self.pixels(*inside)
        before = (inside[0].start - y0, inside[1].start - x0)
        after = (y1 - inside[0].stop, x1 - inside[1].stop)
        around = [*zip(before, after, strict=True), (0, 0)]
        return np.pad(part, around) if any(map(any, around)) else part


def scene_of(image: Shaped[np.ndarray, "h w c"], name: str = "image") -> SceneImage:
    """Returns an array as an open image."""
    height, width = image.shape[:2]
    return SceneImage(name, height, width, lambda rows, columns: image[rows, columns])


@contextmanager
def open_scene(path: str | os.PathLike, name: str | None = None) -> Iterator[SceneImage]:
    """Opens an image file.

    Windows of ``.npy`` files and of most TIFFs are read from the file: memory is bounded by the
    window, and by the largest strip or tile. Missing values of a GeoTIFF, those that it names and
    NaN, are read as 0. Other files are decoded as a whole by the first window.

    Args:
      path: the file, of any format of :func:`~jaxatr.data.read_image`.
      name: its name in messages; None for the path.

    Raises:
      MissingImageError: there is no such file.
      ImageError: it is damaged.
    """
    name = str(path) if name is None else name
    if not os.path.lexists(path):
        path = in_other_form(path) or path
    try:
        with open_regular(path) as file:
            start = file.read(8)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        kind = MissingImageError if missing else decoder.ImageError
        raise kind(f"{name}: {error.strerror or error}") from error
    transform = _of_world_file(Path(path))
    if start.startswith(b"\x93NUMPY"):
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # of a damaged file, any kind
            raise decoder.named(name, error) from error
        if values.ndim in (2, 3) and values.size:
            yield SceneImage(name, values.shape[0], values.shape[1], _of_npy(path, name), transform)
            return
    if start[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        import tifffile  # slow to import

        with ExitStack() as stack:
            try:
                scene = _of_tiff(stack.enter_context(tifffile.TiffFile(path)), name, transform)
            except Exception as error:  # of damaged tags, any kind
                raise decoder.named(name, error) from error
            if scene is not None:
                yield scene
                return
    whole: list[np.ndarray] = []
    content = _content(path, name)
    if content.startswith(decoder.RADAR):
        whole.append(decode_image(content, name))
        height, width = whole[0].shape[:2]
    else:
        header = decoder.header(content, name, others=True)
        height, width = header.height, header.width

    def decoded(rows: slice, columns: slice) -> np.ndarray:
        if not whole:
            whole.append(decode_image(content, name))
        return whole[0][rows, columns]

    yield SceneImage(name, height, width, decoded, transform)


def _content(path: str | os.PathLike, name: str) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise decoder.ImageError(
            f"{name}: {error.strerror or error}; a larger scene is read by windows from a TIFF of "
            f"gray or RGB tiles, or from .npy (limit: {MOST_BYTES} bytes)"
            if Path(path).is_file()
            else f"{name}: {error.strerror or error}"
        ) from error


def _of_npy(path: str | os.PathLike, name: str) -> _Pixels:
    def pixels(rows: slice, columns: slice) -> np.ndarray:
        try:
            # A mapping that stayed open would keep all pages that were read in memory.
            values = np.load(path, mmap_mode="r", allow_pickle=False)
            return decoder.measured(np.array(values[rows, columns]))
        except Exception as error:  # of a damaged file, any kind
            raise decoder.named(name, error) from error

    return pixels


def _of_tiff(file: Any, name: str, transform: np.ndarray | None) -> SceneImage | None:
    """Returns the scene of a TIFF that is read by windows; None for one that is decoded whole."""
    page = _only_page(file)
    if page is None:
        return None
    found = _tiff_transform(page)
    return SceneImage(
        name,
        page.imagelength,
        page.imagewidth,
        _of_page(file, page, name),
        transform if found is None else found,
        _epsg(page),
    )


def _only_page(file: Any) -> Any:
    """Returns the page of a TIFF that is read by windows; None for one that is decoded whole."""
    # tifffile follows directories that lead back to an earlier one without an end.
    handle = file.filehandle
    with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = [number for number, one in enumerate(directories(content)) if one.is_page]
    if len(found) != 1:
        return None
    page = file.pages[found[0]]
    if page.dtype is None or not page.size:
        return None
    gray = page.photometric == 1 and page.samplesperpixel == 1
    rgb = page.photometric == 2 and page.samplesperpixel == 3 and page.planarconfig == 1
    rgb = rgb and page.dtype == np.uint8
    upright = page.tags.valueof(274, default=1) == 1
    rows = page.tilelength or page.rowsperstrip
    columns = page.tilewidth or page.imagewidth
    small = rows * columns * page.samplesperpixel * page.dtype.itemsize <= _LARGEST
    packed = page.compression in (1, *decoder.compression.PACKED)
    plain = packed and (page.predictor == 1 or page.compression in decoder.compression.PREDICTED)
    plain = plain and page.fillorder == 1 and page.bitspersample in (8, 16, 32, 64, 128)
    fits = (gray or rgb) and upright and plain
    return page if fits and (small or page.is_contiguous) else None


def _of_page(file: Any, page: Any, name: str) -> _Pixels:
    """Reads windows of a TIFF's page from those strips or tiles that they touch."""
    missing = _missing(page)
    height, width, samples = page.imagelength, page.imagewidth, page.samplesperpixel
    rows_each = page.tilelength or min(page.rowsperstrip, height)
    columns_each = page.tilewidth or width
    across = math.ceil(width / columns_each)
    order = file.byteorder
    kind = page.dtype.newbyteorder(order)
    row = columns_each * samples * page.dtype.itemsize
    compression = page.compression
    contiguous = page.is_contiguous and compression == 1 and not page.is_tiled
    decode = decoder.compression.unpacked_decoder(page)

    def segment(number: int) -> np.ndarray:
        offset, count = page.dataoffsets[number], page.databytecounts[number]
        if not (offset or count):  # left out of a sparse file
            return np.zeros((rows_each, columns_each, samples), page.dtype)
        file.filehandle.seek(offset)
        stored = file.filehandle.read(count)
        if len(stored) < count:
            raise decoder.ImageError("a truncated TIFF")
        left = rows_each if page.is_tiled else min(rows_each, height - number * rows_each)
        found, _, shape = decode(
            decoder.compression.unpack_segments([stored], compression, [row * left])[0], number
        )
        return np.asarray(found)[0, : shape[1], : shape[2]]

    def pixels(rows: slice, columns: slice) -> np.ndarray:
        try:
            if contiguous:
                offset = page.dataoffsets[0]
                whole = np.memmap(file.filehandle.path, kind, "r", offset, (height, width, samples))
                part = np.array(whole[rows, columns])
            else:
                shape = (rows.stop - rows.start, columns.stop - columns.start, samples)
                part = np.zeros(shape, page.dtype)
                for y in range(rows.start // rows_each, (rows.stop - 1) // rows_each + 1):
                    for x in range(
                        columns.start // columns_each, (columns.stop - 1) // columns_each + 1
                    ):
                        _paste(
                            part,
                            segment(y * across + x),
                            y * rows_each - rows.start,
                            x * columns_each - columns.start,
                        )
            if part.dtype.kind in "fc":
                part[~np.isfinite(part)] = 0
            if missing is not None and not math.isnan(missing):
                part[part == missing] = 0
            return decoder.measured(part)
        except Exception as error:  # of a damaged file, any kind
            raise decoder.named(name, error) from error

    return pixels


def _paste(onto: np.ndarray, piece: np.ndarray, top: int, left: int) -> None:
    """Copies the part of a piece that lies within an array."""
    y0, x0 = max(top, 0), max(left, 0)
    y1 = min(top + piece.shape[0], onto.shape[0])
    x1 = min(left + piece.shape[1], onto.shape[1])
    onto[y0:y1, x0:x1] = piece[y0 - top : y1 - top, x0 - left : x1 - left]


def _missing(page: Any) -> float | None:
    text = page.tags.valueof(_NODATA)
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _tiff_transform(page: Any) -> np.ndarray | None:
    """Returns a GeoTIFF's transformation; pixels count from their corner."""
    matrix = page.tags.valueof(_TRANSFORM)
    if matrix is not None and len(matrix) == 16:
        full = np.array(matrix, float).reshape(4, 4)
        return full[:2][:, [0, 1, 3]]
    scale, tie = page.tags.valueof(_PIXEL_SCALE), page.tags.valueof(_TIEPOINT)
    if scale is None or tie is None or len(scale) < 2 or len(tie) < 6:
        return None
    column, row, _, x, y = tie[:5]
    return np.array([[scale[0], 0, x - column * scale[0]], [0, -scale[1], y + row * scale[1]]])


def _epsg(page: Any) -> int | None:
    """Returns the EPSG number of a GeoTIFF's projected or else geographic reference system."""
    keys = np.array(page.tags.valueof(_KEYS, default=()), int)
    rows = keys[4 : len(keys) // 4 * 4].reshape(-1, 4)
    found = {key: value for key, place, _, value in rows.tolist() if not place}
    number = found.get(_PROJECTED, found.get(_GEOGRAPHIC, _USER_DEFINED))
    return None if number in (0, _USER_DEFINED) else number


def _of_world_file(path: Path) -> np.ndarray | None:
    """Returns the transformation of a world file, which refers to the middle of a pixel."""
    if not path.suffix:
        return None
    for suffix in (_WORLD.get(path.suffix.lower(), ".wld"), f"{path.suffix}w", ".wld"):
        beside = path.with_suffix(suffix)
        if beside.is_file():
            try:
                a, d, b, e, x, y = map(float, beside.read_text("ascii").split())
            except ValueError as error:
                raise decoder.ImageError(f"{beside}: wanted six numbers ({error})") from error
            return np.array([[a, b, x - (a + b) / 2], [d, e, y - (d + e) / 2]])
    return None
