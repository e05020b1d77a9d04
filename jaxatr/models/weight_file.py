"""Reading named arrays from weight files: safetensors or PyTorch."""

import hashlib
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors

from jaxatr.files import MissingFileError, read_regular
from jaxatr.models.torch_file import is_torch, read_tensors

_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read_content(path: str | os.PathLike) -> tuple[bytes, str]:
    """Returns a file's bytes and their SHA-256.

    Raises:
      ValueError: the file does not exist.
    """
    if not Path(path).is_file():
        raise MissingFileError(f"{path}: there is no such file")
    content = read_regular(path)
    return content, hashlib.sha256(content).hexdigest()


def arrays_of(content: bytes, title: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name.

    The format is detected from the first bytes. Only tensors are built from a pickle
    (:mod:`jaxatr.models.torch_file`).

    Raises:
      ValueError: the file has neither format, is corrupt, or is a pickle of anything but tensors.
    """
    if is_torch(content):
        return read_tensors(content, title)
    try:
        parsed = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{title} is not a valid safetensors file: {error}") from error
    if odd := [
        f"  {name}: {e['dtype']}" for name, e in parsed.items() if e["dtype"] not in _DTYPES
    ]:
        raise ValueError("\n".join([f"{title}: got dtypes that NumPy lacks:", *sorted(odd)]))
    return {
        name: np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in parsed.items()
    }
