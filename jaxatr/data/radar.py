"""Reading of radar files: NITF, NSIF, SICD and SIO, by sarpy."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile

from jaxatr.data import decoder
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
    from sarpy.io.general.nitf import NITFDetails

    if is_nitf:
        for one in NITFDetails(path).img_headers or ():
            _check(one.NROWS, one.NCOLS, blocks=one.NBPR * one.NBPC * one.NPPBV * one.NPPBH)
    try:
        reader = io.open(path)
    except Exception:
        # The readers of special products come first, and raise errors about files of other kinds.
        if not is_nitf:
            raise
        reader = _general_reader()(path)
    try:
        (size, *further) = reader.get_data_size_as_tuple()
        if further:
            raise ImageError("holds several images; one per file is expected")
        _check(*size[:2])
        return np.array(reader.read())
    finally:
        reader.close()


def _general_reader() -> type:
    """Returns sarpy's reader of any NITF, without its errors about the order of bands."""
    from sarpy.io.general.data_segment import DataSegment
    from sarpy.io.general.nitf import NITFReader

    class Reader(NITFReader):
        def _create_data_segment_from_imode_r(self, index: int, apply_format: bool) -> DataSegment:
            # sarpy takes the order for a kind of compression here, and refuses it.
            return self._handle_no_compression(index, apply_format)

        def _create_data_segment_from_imode_s(self, index: int, apply_format: bool) -> DataSegment:
            header = self.get_image_header(index)
            if len(header.Bands) > 1 and header.NBPC * header.NBPR > 1:
                return super()._create_data_segment_from_imode_s(index, apply_format)
            header.IMODE = "B"  # of one band or block, the order is the same
            return self._create_data_segment_from_imode_b(index, apply_format)

    return Reader


def _check(rows: int, columns: int, *, blocks: int = 0) -> None:
    """Checks that an image takes no more memory than its pixels need."""
    if rows * columns > decoder.MOST_PIXELS:
        wanted = f"wanted at most {decoder.MOST_PIXELS} pixels"
        raise ImageError(f"{rows}x{columns} pixels, {wanted}")
    if blocks > max(_ROOM, 4 * rows * columns):
        raise ImageError(f"{rows}x{columns} pixels in blocks of {blocks} pixels")
