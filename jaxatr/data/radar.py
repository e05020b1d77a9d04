"""Reading of radar files: NITF, NSIF, SICD and SIO, by sarpy."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from jaxatr.data import decoder, nitf
from jaxatr.data.decoder import ImageError
from jaxatr.extras import extra
from jaxatr.files import Scratch
from jaxatr.typing import Shaped

_NITF, _NSIF = b"NITF02.10", b"NSIF01.00"  # NATO's name of the same format (STANAG 4545)
_ROOM = 1 << 24  # pixels that the blocks of an image may have in any case
_LOCK = threading.Lock()


def decode(content: bytes, name: str, *, phase: bool = False) -> Shaped[np.ndarray, "h w c"]:
    """Decodes a radar file like :func:`jaxatr.data.read_image`; complex values by magnitude.

    Args:
      content: the file's content, which begins with one of :data:`jaxatr.data.decoder.RADAR`.
      name: the file's name, for error messages.
      phase: make two bands of each complex one, its magnitude and its phase in radians.

    Raises:
      ImageError: the file is damaged, holds several images, or exceeds the limits.
      ImportError: the extra ``radar`` is not installed.
    """
    extra("sarpy", "radar", "a radar file (NITF, SICD or SIO)")
    if content.startswith(_NSIF):
        content = _NITF + content[len(_NSIF) :]
    is_nitf = content.startswith(b"NITF")
    path = Path()
    try:
        with (
            _LOCK,
            _restored(),
            warnings.catch_warnings(),
            Scratch() as folder,
        ):
            warnings.simplefilter("ignore")  # raised within sarpy
            path = Path(folder) / ("image.nitf" if is_nitf else "image.sio")
            path.write_bytes(content)
            return decoder.measured(_read(str(path), is_nitf=is_nitf), phase=phase)
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:  # of a damaged file, any kind
        why = decoder.reason(error).replace(str(path), "the file")
        raise ImageError(f"{name}: not a readable image ({why})") from error


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Restores what importing sarpy changes for the whole process, and silences its log."""
    state = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    log = logging.getLogger("sarpy")
    level = log.level
    log.setLevel(logging.CRITICAL)  # its errors are raised as well
    try:
        yield
    finally:
        log.setLevel(level)
        Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = state


def _read(path: str, *, is_nitf: bool) -> np.ndarray:
    from sarpy import io

    if is_nitf:
        return _read_nitf(path)
    reader = io.open(path)
    try:
        _check(*reader.get_data_size_as_tuple()[0][:2])
        return np.array(reader.read())
    finally:
        reader.close()


def _read_nitf(path: str) -> np.ndarray:
    from sarpy.io.complex import sicd
    from sarpy.io.general.nitf import NITFDetails, NITFReader
    from sarpy.io.product import sidd

    details = NITFDetails(path)
    headers = list(details.img_headers or ())
    for one in headers:
        _check(one.NROWS, one.NCOLS, blocks=one.NBPR * one.NBPC * one.NPPBV * one.NPPBH)
    reader = None
    for special in (sicd, sidd):
        # They also raise errors about files of other kinds.
        with contextlib.suppress(Exception):
            reader = reader or special.is_a(path)
    if reader is not None and any(map(nitf.is_beyond_sarpy, headers)):
        raise ImageError("a SICD or SIDD with a mask or with blocks larger than the image")
    if reader is None:
        # A bilevel segment beside others is a mask or an overlay of one.
        coloured = [place for place, one in enumerate(headers) if one.PVTYPE != "B"]
        places = coloured or range(len(headers))
        if len(places) != 1:
            raise ImageError(f"holds {len(places) or 'no'} images; one per file is expected")
        header = headers[places[0]]
        if header.IC in nitf.PLAIN:
            return nitf.pixels(header, details.get_image_bytes(places[0]))
        if header.IC in NITFReader.unsupported_compressions:
            raise ImageError(f"compression {header.IC}, wanted none, JPEG or JPEG 2000")
        reader = NITFReader(details)
    try:
        (size, *further) = reader.get_data_size_as_tuple()
        if further:
            raise ImageError("holds several images; one per file is expected")
        _check(*size[:2])
        return np.array(reader.read())
    finally:
        reader.close()


def _check(rows: int, columns: int, *, blocks: int = 0) -> None:
    """Checks that an image takes no more memory than its pixels need."""
    if rows * columns > decoder.MOST_PIXELS:
        wanted = f"wanted at most {decoder.MOST_PIXELS} pixels"
        raise ImageError(f"{rows}x{columns} pixels, {wanted}")
    if blocks > max(_ROOM, 4 * rows * columns):
        raise ImageError(f"{rows}x{columns} pixels in blocks of {blocks} pixels")
