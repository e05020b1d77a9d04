"""NumPy's arrays (``.npy``)."""

import io
import math
from functools import partial

import numpy as np

from jaxatr.data.decoder.header import Header, ImageError

START = b"\x93NUMPY"


def header(content: bytes) -> Header:
    """Reads an array's header.

    Raises:
      ImageError: the array does not have an image's shape or type, or the file is too short for it.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if len(shape) not in (2, 3) or not all(shape) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise ImageError(f"got an array of shape {list(shape)}, wanted [h, w] or [h, w, 3]")
    if dtype.kind not in "buifc":
        raise ImageError(f"got an array of {dtype}, wanted numbers")
    if math.prod(shape) * dtype.itemsize > len(content):
        raise ImageError(f"too short for its stated array of shape {list(shape)}")
    read = partial(np.lib.format.read_array, io.BytesIO(content), allow_pickle=False)
    return Header(shape[0], shape[1], read)
