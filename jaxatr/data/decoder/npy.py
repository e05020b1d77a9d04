"""NumPy's arrays (``.npy``)."""

import io
import math
from functools import partial

import numpy as np

from jaxatr.data.decoder.header import Header, ImageError
from jaxatr.data.decoder.measured import bands_of

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
    bands = bands_of(shape)
    if dtype.kind not in "buifc":
        raise ImageError(f"got an array of {dtype}, wanted numbers")
    if math.prod(shape) * dtype.itemsize > len(content):
        raise ImageError(f"too short for its stated array of shape {list(shape)}")
    read = partial(np.lib.format.read_array, io.BytesIO(content), allow_pickle=False)
    return Header(shape[0], shape[1], read, bands=bands)
