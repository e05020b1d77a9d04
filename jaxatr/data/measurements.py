"""Reading of measurement files: NumPy arrays, TIFFs that Pillow cannot read, and radar formats."""

import contextlib
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jaxatr.resolve import extra
from jaxatr.typing import Shaped

_NPY = b"\x93NUMPY"
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PHOENIX = b"[PhoenixHeaderVer"
_NITF = (b"NITF", b"NSIF")
_SIO = (b"\xff\x01\x7f\xfe", b"\xfe\x7f\x01\xff", b"\xff\x02\x7f\xfd", b"\xfd\x7f\x02\xff")


def reader_of(content: bytes) -> Callable[[bytes], Shaped[np.ndarray, "..."]] | None:
    """Returns the reader for a file's first bytes, or None if Pillow reads it.

    Args:
      content: the file's content.
    """
    if content.startswith(_NPY):
        return _npy
    if content.startswith(_PHOENIX):
        return _phoenix
    return _sarpy if content.startswith((*_NITF, *_SIO)) else None


def stated_size(content: bytes) -> tuple[int, int]:
    """Returns the rows and columns stated in a file's header, checked against the file's length.

    Args:
      content: content of a file that :func:`reader_of` recognises.

    Raises:
      ValueError: the file is too short, the array does not have an image's shape, or it is a radar
        file, whose size is known only after opening.
    """
    if content.startswith(_NPY):
        return _npy_size(content)
    if content.startswith(_PHOENIX):  # an upper bound: the reader checks the header's size
        return 1, max(1, len(content) // 8)
    raise ValueError("a radar file (NITF, SICD or SIO): save its image as TIFF or .npy")


def _npy_size(content: bytes) -> tuple[int, int]:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if len(shape) not in (2, 3) or not all(shape) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise ValueError(f"got an array of shape {list(shape)}, wanted [h, w] or [h, w, 3]")
    if math.prod(shape) * dtype.itemsize > len(content):
        raise ValueError(f"too short for its stated array of shape {list(shape)}")
    return shape[0], shape[1]


def is_tiff(content: bytes) -> bool:
    """Whether a file starts like a TIFF."""
    return content.startswith(_TIFF)


def read_tiff(content: bytes) -> Shaped[np.ndarray, "..."]:
    """Reads a TIFF of a type that Pillow does not support, with the values as recorded.

    Raises:
      ValueError: the file is damaged, has several pages, or uses an unsupported compression.
    """
    import tifffile  # slow to import

    with tifffile.TiffFile(io.BytesIO(content)) as file:
        if len(file.pages) > 1:
            raise ValueError("holds several pages; one image per file is expected")
        return file.pages[0].asarray()


def measured(values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "h w c"]:
    """Converts measurements ``[h, w]`` or ``[h, w, c]`` to an image ``[h, w, c]``, ``c`` 1 or 3.

    uint8 and uint16 are kept, booleans become 0 and 255, complex values their magnitude; everything
    else becomes float32. Nothing is rescaled.

    Args:
      values: an array of any numeric type.

    Raises:
      ValueError: the shape does not fit, or a value is not a number or not finite as float32.
    """
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or not values.size:
        raise ValueError(f"got an array of shape {list(values.shape)}, wanted [h, w] or [h, w, 3]")
    if values.dtype.kind == "b":
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind not in "uifc":
        raise ValueError(f"got an array of {values.dtype}, wanted numbers")
    if values.dtype.kind == "c":
        values = np.abs(values)
    if values.dtype.kind == "u" and values.dtype.itemsize < 4:
        return np.ascontiguousarray(values, values.dtype.newbyteorder("="))
    with np.errstate(over="ignore"):  # overflow becomes infinite and is refused
        floats = np.ascontiguousarray(values, np.float32)
    if not np.isfinite(floats).all():
        raise ValueError("holds pixels that are not finite numbers")
    return floats


def _npy(content: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def _phoenix(content: bytes) -> np.ndarray:
    from jaxatr.data.sources.mstar.phoenix import read_chip  # avoids a circular import

    with _as_file(content, "chip") as path:
        return read_chip(path).magnitude


def _sarpy(content: bytes) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # raised within sarpy
        sarpy = extra("sarpy.io", "radar", "a radar file (NITF, SICD or SIO)")
        logging.getLogger("sarpy").setLevel(logging.CRITICAL)  # its errors are raised as well
        suffix = "sio" if content.startswith(_SIO) else "nitf"
        with _as_file(content, suffix) as path:
            reader = sarpy.open(str(path))
            try:
                if len(reader.get_data_size_as_tuple()) > 1:
                    raise ValueError("holds several images; one per file is expected")
                return np.array(reader.read())
            finally:
                reader.close()


@contextlib.contextmanager
def _as_file(content: bytes, suffix: str) -> Iterator[Path]:
    """Writes content to a temporary file, for readers that need a path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"image.{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except Exception as error:  # which may name the temporary file
            if str(path) not in str(error):
                raise
            text = str(error).replace(f"{path}: ", "").replace(str(path), "the file")
            raise ValueError(text) from error
