"""Reads a file's tensors as NumPy arrays, and rejects shapes that do not match the data."""

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxatr.files import MissingFileError
from jaxatr.onnx.ops.dtypes import BITS, NAMES, dtype_of
from jaxatr.onnx.ops.values import sized
from jaxatr.onnx.package import onnx

INT32_FIELD = "uint8 int8 uint16 int16 int32 bool".split()
BITS_FIELD = {"float16": np.uint16, "bfloat16": np.uint16}


def to_array(tensor: Any, folder: Path | None = None) -> np.ndarray:
    """Returns the values of a ``TensorProto``.

    Args:
      tensor: the proto.
      folder: folder of the model's file, which holds external data; None if the model was not
        read from a file.

    Raises:
      ValueError: the shape does not match the data, the type is unknown, or external data are
        missing or outside the folder.
    """
    where = f"tensor {tensor.name!r}"
    if tensor.data_type not in NAMES:
        raise ValueError(f"{where}: got type {tensor.data_type}, wanted 1 to {max(NAMES)}")
    shape, name = tuple(tensor.dims), NAMES[tensor.data_type]
    if any(size < 0 for size in shape):
        raise ValueError(f"{where}: got shape {shape}, wanted no negative dimension")
    if len(shape) > 32:
        raise ValueError(f"{where}: got {len(shape)} dimensions, wanted at most 32")
    count = math.prod(shape)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _from_bytes(where, _external(where, tensor, folder), name, shape)
    if tensor.HasField("raw_data"):
        if name == "str":
            raise ValueError(f"{where}: strings cannot be stored as raw data")
        return _from_bytes(where, np.frombuffer(tensor.raw_data, np.uint8), name, shape)
    try:
        values = _from_fields(tensor, name)
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: a string is not valid UTF-8 ({error})") from error
    if values.size != count:
        raise ValueError(f"{where}: got {values.size} values, wanted {count} for shape {shape}")
    return values.reshape(shape)


def embed(tensor: Any, folder: Path | None) -> None:
    """Moves the external data of a ``TensorProto`` into the proto.

    Args:
      tensor: the proto, changed in place.
      folder: folder of the model's file, or None.

    Raises:
      ValueError: the shape does not match the data, the type is unknown, or external data are
        missing or outside the folder.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    to_array(tensor, folder)  # checks the size
    tensor.raw_data = _external(f"tensor {tensor.name!r}", tensor, folder).tobytes()
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def to_dense(sparse: Any, folder: Path | None = None) -> np.ndarray:
    """Returns a ``SparseTensorProto`` as a dense array.

    Args:
      sparse: the proto.
      folder: folder of the model's file, or None.

    Raises:
      ValueError: an index is out of range, or the values or indices are malformed.
    """
    values, indices = to_array(sparse.values, folder), to_array(sparse.indices, folder)
    shape = sized(sparse.dims)
    flat = indices
    if indices.ndim == 2:
        if indices.shape[1] != len(shape) or (indices < 0).any() or (indices >= shape).any():
            raise ValueError(f"sparse tensor {sparse.values.name!r}: an index is out of range")
        flat = np.asarray(np.ravel_multi_index(tuple(indices.T), shape))
    dense = np.zeros(math.prod(shape), values.dtype)
    if flat.shape != values.shape or ((flat < 0) | (flat >= dense.size)).any():
        raise ValueError(f"sparse tensor {sparse.values.name!r}: an index is out of range")
    dense[flat] = values
    return dense.reshape(shape)


def _from_bytes(where: str, raw: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    count, dtype = math.prod(shape), dtype_of(name)
    bits = BITS.get(name, 8 * dtype.itemsize)
    wanted = -(-count * bits // 8)
    if raw.size != wanted:
        raise ValueError(f"{where}: got {raw.size} bytes, wanted {wanted} for {name} {shape}")
    if name in BITS:
        return _unpacked(raw, name)[:count].reshape(shape)
    return raw.view(dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)


def _unpacked(raw: np.ndarray, name: str) -> np.ndarray:
    """Unpacks elements smaller than a byte, lowest bits first."""
    bits = BITS[name]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((raw[:, None] >> shifts) & np.uint8(2**bits - 1)).reshape(-1)
    if name.startswith("uint"):
        return codes.astype(dtype_of(name))
    if name.startswith("int"):
        signed = codes.astype(np.int8)
        return np.where(signed >= 2 ** (bits - 1), signed - 2**bits, signed).astype(dtype_of(name))
    return codes.view(ml_dtypes.float4_e2m1fn)


def _from_fields(tensor: Any, name: str) -> np.ndarray:
    """Returns the values from the proto's typed field."""
    if name == "str":
        return np.array([text.decode("utf-8") for text in tensor.string_data], object)
    if name == "float32":
        return np.asarray(tensor.float_data, np.float32)
    if name == "float64":
        return np.asarray(tensor.double_data, np.float64)
    if name == "complex64":
        return np.asarray(tensor.float_data, np.float32).view(np.complex64)
    if name == "complex128":
        return np.asarray(tensor.double_data, np.float64).view(np.complex128)
    if name == "int64":
        return np.asarray(tensor.int64_data, np.int64)
    if name in ("uint32", "uint64"):
        return np.asarray(tensor.uint64_data, np.uint64).astype(name)
    codes = np.asarray(tensor.int32_data, np.int32)
    if name in INT32_FIELD:
        return codes.astype(name)
    if name in BITS_FIELD:
        return codes.astype(BITS_FIELD[name]).view(dtype_of(name))
    raw = codes.astype(np.uint8)
    if name in BITS:
        return _unpacked(raw, name)[: math.prod(tensor.dims)]
    return raw.view(dtype_of(name))


def _external(where: str, tensor: Any, folder: Path | None) -> np.ndarray:
    """Returns a tensor's bytes from an external file in the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if any(isinstance(text, bytes) for entry in entries.items() for text in entry):
        raise ValueError(f"{where}: the external data's entries are not valid UTF-8: {entries}")
    location = entries.get("location", "")
    if folder is None:
        raise ValueError(
            f"{where}: its data are in {location!r}, but the model was not read from a file"
        )
    root = folder.resolve()
    path = root / location
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise ValueError(f"{where}: got the location {location!r}, wanted a path in the folder")
    for part in [path, *path.parents]:
        if part == root:
            break
        if part.is_symlink():
            raise ValueError(f"{where}: {location!r} is a symbolic link, wanted a regular file")
    if not path.is_file():
        raise MissingFileError(f"{where}: there is no file {location!r} in the model's folder")
    size = path.stat().st_size
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", size - offset))
    except ValueError:
        raise ValueError(f"{where}: offset and length are not numbers: {entries}") from None
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError(
            f"{where}: got {length} bytes at {offset}, but {location!r} has only {size}"
        )
    if length == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode="c", offset=offset, shape=(length,))
