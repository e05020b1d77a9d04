"""Images of scenes, of which windows are read without the rest where the file allows it."""

import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxatr.data import decoder, envi
from jaxatr.data.decoder.directory import directories
from jaxatr.data.images import SUFFIXES, MissingImageError, decode_file, decode_image
from jaxatr.files import MOST_BYTES, in_any_form, open_regular, read_regular
from jaxatr.typing import Shaped

_LARGEST = 1 << 28
"""Bytes of the largest strip or tile of a TIFF that is unpacked for a window."""

_PIXEL_SCALE, _TIEPOINT, _TRANSFORM, _NODATA = 33550, 33922, 34264, 42113
_RASTER, _POINTS = 1025, 2  # the key whose value 2 says that coordinates are a pixel's middle
_KEYS, _GEOGRAPHIC, _PROJECTED, _USER_DEFINED = 34735, 2048, 3072, 32767


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
      epsg: number of the map coordinates' reference system; None if it is not known.
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
    path = in_any_form(path)
    try:
        with open_regular(path) as file:
            start = file.read(8)
    except OSError as error:
        absent = isinstance(error, FileNotFoundError)
        kind = MissingImageError if absent else decoder.ImageError
        raise kind(f"{name}: {error.strerror or error}") from error
    transform = _of_world_file(Path(path))
    epsg: int | None = None
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
            scene = None
            try:
                file = stack.enter_context(tifffile.TiffFile(path))
                page = _only_page(file)
                if page is not None:
                    found = _tiff_transform(page)
                    transform = _as_decoded(page, transform if found is None else found)
                    epsg = None if transform is None else _epsg(page)
                    if _has_windows(page):
                        pixels = _of_page(file, page, name)
                        size = (page.imagelength, page.imagewidth)
                        scene = SceneImage(name, *size, pixels, transform, epsg)
            except Exception as error:  # of damaged tags, any kind
                raise decoder.named(name, error) from error
            if scene is not None:
                yield scene
                return
    whole: list[np.ndarray] = []
    content = _content(path, name)
    if content.startswith(decoder.RADAR) or _is_envi(Path(path), content):
        whole.append(decode_file(Path(path), content, name))
        height, width = whole[0].shape[:2]
    else:
        header = decoder.header(content, name, others=True)
        height, width = header.height, header.width

    def decoded(rows: slice, columns: slice) -> np.ndarray:
        if not whole:
            whole.append(decode_image(content, name, fill=True))
        return whole[0][rows, columns]

    yield SceneImage(name, height, width, decoded, transform, epsg)


def read_scene(path: str | os.PathLike, name: str | None = None) -> Shaped[np.ndarray, "h w c"]:
    """Reads a whole scene, whose pixels are those of the windows of :func:`open_scene`.

    Raises:
      MissingImageError: there is no such file.
      ImageError: it is damaged, or too large.
    """
    with open_scene(path, name) as scene:
        if scene.height * scene.width > decoder.MOST_PIXELS:
            raise decoder.ImageError(
                f"{scene.name}: got {scene.width}x{scene.height} pixels, wanted at most "
                f"{decoder.MOST_PIXELS} in a whole scene"
            )
        return scene.pixels(slice(0, scene.height), slice(0, scene.width))


def _is_envi(path: Path, content: bytes) -> bool:
    beside = path.suffix.lower() not in SUFFIXES and envi.header_beside(path) is not None
    return beside or envi.is_envi(content)


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


def _only_page(file: Any) -> Any:
    """Returns the page of a TIFF without its reduced copies and masks; None for one of several."""
    # tifffile follows directories that lead back to an earlier one without an end.
    handle = file.filehandle
    with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        found = [number for number, one in enumerate(directories(content)) if one.is_page]
    if len(found) != 1:
        return None
    return file.pages[found[0]]


def _has_windows(page: Any) -> bool:
    """Whether a TIFF's page is read by windows, instead of as a whole."""
    if page.dtype is None or not page.size:
        return False
    gray = page.photometric == 1 and page.samplesperpixel == 1
    rgb = page.photometric == 2 and page.samplesperpixel == 3 and page.planarconfig == 1
    rgb = rgb and page.dtype == np.uint8
    upright = _is_upright(page)
    rows = page.tilelength or page.rowsperstrip
    columns = page.tilewidth or page.imagewidth
    small = rows * columns * page.samplesperpixel * page.dtype.itemsize <= _LARGEST
    packed = page.compression in (1, *decoder.compression.PACKED)
    plain = packed and (page.predictor == 1 or page.compression in decoder.compression.PREDICTED)
    plain = plain and page.fillorder == 1 and page.bitspersample in (8, 16, 32, 64, 128)
    fits = (gray or rgb) and upright and plain
    return bool(fits and (small or page.is_contiguous))


def _is_upright(page: Any) -> bool:
    return _orientation(page) == 1


def _orientation(page: Any) -> int:
    return page.tags.valueof(274, default=1)


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
            return decoder.measured(decoder.filled(part, missing))
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
    scale, tie = page.tags.valueof(_PIXEL_SCALE), page.tags.valueof(_TIEPOINT)
    if matrix is not None and len(matrix) == 16:
        found = np.array(matrix, float).reshape(4, 4)[:2][:, [0, 1, 3]]
    elif scale is not None and tie is not None and len(scale) >= 2 and len(tie) >= 6:
        column, row, _, x, y = tie[:5]
        found = np.array([[scale[0], 0, x - column * scale[0]], [0, -scale[1], y + row * scale[1]]])
    else:
        return None
    if _geo_keys(page).get(_RASTER) == _POINTS:
        found[:, 2] -= found[:, :2].sum(axis=1) / 2
    return found


def _as_decoded(page: Any, transform: np.ndarray | None) -> np.ndarray | None:
    """Returns the transformation of a page's decoded pixels, which its orientation has turned."""
    if transform is None:
        return None
    number, stored = _orientation(page), np.eye(3)
    size = [page.imagewidth, page.imagelength]
    swapped = number in (5, 6, 7, 8)
    for axis, flipped in enumerate(((2, 3, 6, 7), (3, 4, 7, 8))):
        if number in flipped:
            stored[axis, [axis, 2]] = -1, size[1 - axis if swapped else axis]
    return transform @ (stored[[1, 0, 2]] if swapped else stored)


def _geo_keys(page: Any) -> dict[int, int]:
    """Returns those of a GeoTIFF's keys whose values are whole numbers."""
    keys = np.array(page.tags.valueof(_KEYS, default=()), int)
    rows = keys[4 : len(keys) // 4 * 4].reshape(-1, 4)
    return {key: value for key, place, _, value in rows.tolist() if not place}


def _epsg(page: Any) -> int | None:
    """Returns the EPSG number of a GeoTIFF's projected or else geographic reference system."""
    found = _geo_keys(page)
    number = found.get(_PROJECTED, found.get(_GEOGRAPHIC, _USER_DEFINED))
    return None if number in (0, _USER_DEFINED) else number


def is_world_file(path: PurePath) -> bool:
    """Whether a file has the name of a world file, which belongs to the image beside it."""
    return path.suffix.lower() in {name for one in SUFFIXES for name in _world_suffixes(one)}


def _world_suffixes(suffix: str) -> tuple[str, str, str]:
    """Returns the suffixes of a world file: of ``.jp2``, ``.j2w``, ``.jp2w`` and ``.wld``."""
    return f".{suffix[1:2]}{suffix[-1]}w", f"{suffix}w", ".wld"


def _of_world_file(path: Path) -> np.ndarray | None:
    """Returns the transformation of a world file, which refers to the middle of a pixel."""
    if not path.suffix:
        return None
    suffixes = _world_suffixes(path.suffix)
    for suffix in (*suffixes, *map(str.lower, suffixes), *map(str.upper, suffixes)):
        beside = path.with_suffix(suffix)
        if beside.is_file():
            try:
                a, d, b, e, x, y = map(float, beside.read_text("ascii").split())
            except ValueError as error:
                raise decoder.ImageError(f"{beside}: wanted six numbers ({error})") from error
            return np.array([[a, b, x - (a + b) / 2], [d, e, y - (d + e) / 2]])
    return None
