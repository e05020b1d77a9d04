"""A safe reader of PyTorch files that builds only tensors.

``torch.save`` writes a pickle, which can make the reader call any Python function. This reader
accepts only PyTorch's storage types, the functions that build tensors from them, and
``OrderedDict``. It replaces them by code of this module, so that PyTorch is not needed, and raises
an error for any other name. It reads both of PyTorch's formats: the zip archive, and the format
before version 1.6, which is five consecutive pickles followed by the storages.
"""

import collections
import io
import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # constants of the older format
_ZIP = b"PK\x03\x04"
_STORAGES = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}
_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
_MOST_COPIES = 16
"""Tensors may be views of the same numbers; together they take this many times the file's size."""
_ENTRIES = ("state_dict", "model_state_dict", "model")


class _Type(NamedTuple):
    """A storage type."""

    dtype: np.dtype


class _Storage(NamedTuple):
    """A one-dimensional buffer of numbers that tensors are views of."""

    key: str
    dtype: np.dtype
    count: int


class _Tensor(NamedTuple):
    """A tensor, as a view of a storage that may not have been read yet."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def is_torch(content: bytes) -> bool:
    """Returns whether a file's content starts like a PyTorch file or another pickle."""
    pickled = content[:1] == b"\x80" and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    # A safetensors file starts with a length of 8 bytes, which may be 0x0280, like a pickle.
    return (pickled and content[4:9] != b"\0\0\0\0{") or content.startswith(_ZIP)


def read_tensors(content: bytes, title: str) -> dict[str, np.ndarray]:
    """Reads the tensors of a network's ``state_dict`` saved with ``torch.save``.

    Args:
      content: content of the file, which is the dictionary of tensors itself or has it as an entry
        ``state_dict``, ``model_state_dict`` or ``model``.
      title: name of the file in error messages.

    Returns:
      Arrays by name.

    Raises:
      ValueError: the file refers to anything but tensors and dictionaries, is truncated or altered,
        or contains no named tensors.
    """
    try:
        read = _of_archive if content.startswith(_ZIP) else _of_pickles
        found, storages = read(content)
        arrays: dict[str, np.ndarray] = {}
        left = _MOST_COPIES * len(content)
        for name, one in _named(found).items():
            arrays[name] = _array(one, storages)
            left -= arrays[name].nbytes
            if left < 0:
                raise _Refused(f"has tensors of more than {_MOST_COPIES} times the file's size")
        return arrays
    except _Refused as error:
        raise ValueError(f"{title}: {error}") from error
    except Exception as error:  # a broken pickle may raise anything
        raise ValueError(f"{title} is not a valid PyTorch file of tensors: {error}") from error


class _Refused(ValueError):
    """The file is readable but has unexpected contents."""


class _Unpickler(pickle.Unpickler):
    """Builds only dictionaries, lists, numbers, strings and :class:`_Tensor`."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _STORAGES:
            return _Type(_STORAGES[name])
        if (module, name) in _FUNCTIONS:
            return _FUNCTIONS[module, name]
        raise _Refused(
            f"refers to {module}.{name}; wanted only tensors in dictionaries, as written by "
            "torch.save(network.state_dict(), PATH)"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        kind, of, key, _, count, *view = pid
        if kind != "storage" or not isinstance(of, _Type) or any(view):
            raise _Refused("has an external reference that is not a storage of numbers")
        return _Storage(str(key), of.dtype, int(count))


def _unpickled(file: io.BytesIO) -> Any:
    """Builds the next pickle's object, after checking that this takes memory in proportion.

    Python's reader of pickles allocates what a number in the file asks for: a list as long as the
    place at which an object is to be remembered, an array of bytes of the stated length.
    """
    start = file.tell()
    for steps, (operation, argument, _) in enumerate(pickletools.genops(file)):
        if operation.name in _MEMO and int(argument or 0) > steps:  # places are used in turn
            raise _Refused(f"remembers an object at place {argument} after {steps} steps")
        if operation.name == "BYTEARRAY8":
            raise _Refused("contains an array of bytes, which PyTorch does not write")
    file.seek(start)
    return _Unpickler(file).load()


def _rebuilt(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError(f"a tensor of {type(storage).__name__}, wanted a storage")
    tensor = _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))
    if len(tensor.shape) != len(tensor.strides) or min(offset, *tensor.shape, *strides, 0) < 0:
        raise ValueError(f"a tensor of shape {tensor.shape} and strides {tensor.strides}")
    return tensor


def _parameter(tensor: Any, *_: Any) -> Any:
    return tensor


_FUNCTIONS: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuilt,
    ("torch._utils", "_rebuild_parameter"): _parameter,
}


def _of_archive(content: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads the current format, whose storages are files of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if packed := [n for n, e in entries.items() if e.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"{packed[0]} is compressed, which PyTorch does not do")
        pickles = [name for name in entries if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise _Refused(f"is an archive with {len(pickles)} files data.pkl, wanted one")
        folder = pickles[0].removesuffix("data.pkl")
        order = archive.read(folder + "byteorder") if folder + "byteorder" in entries else b"little"
        found = _unpickled(io.BytesIO(archive.read(pickles[0])))
        storages = {
            storage.key: _numbers(archive.read(f"{folder}data/{storage.key}"), storage, order)
            for storage in _storages(_named(found))
        }
    return found, storages


def _of_pickles(content: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads the older format: magic number, version, system, object, keys, then the storages."""
    file = io.BytesIO(content)
    if (magic := _unpickled(file)) != _MAGIC:
        raise _Refused(f"is a pickle of {type(magic).__name__}, not a PyTorch file")
    if (version := _unpickled(file)) != _PROTOCOL:
        raise _Refused(f"has version {version!r} of PyTorch's format, wanted {_PROTOCOL}")
    system = _unpickled(file)
    order = b"little" if system.get("little_endian", True) else b"big"
    found, keys = _unpickled(file), _unpickled(file)
    wanted = {storage.key: storage for storage in _storages(_named(found))}
    sizes = {storage.key: storage.dtype.itemsize for storage in _every_storage(found)}
    storages = {}
    for key in map(str, keys):
        count = int.from_bytes(file.read(8), "little")
        if key not in sizes:
            raise ValueError(f"the storage {key} belongs to no tensor")
        raw = file.read(count * sizes[key])
        if key in wanted:
            storages[key] = _numbers(raw, wanted[key], order)
    return found, storages


def _every_storage(found: Any) -> list[_Storage]:
    """Lists the storages of all tensors in nested dictionaries and lists, each object once."""
    storages, waiting, seen = [], [found], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, _Tensor):
            storages.append(one.storage)
        elif isinstance(one, Mapping | list | tuple):
            waiting += one.values() if isinstance(one, Mapping) else one
    return storages


def _storages(tensors: Mapping[str, _Tensor]) -> list[_Storage]:
    return list(dict.fromkeys(tensor.storage for tensor in tensors.values()))


def _named(found: Any) -> dict[str, _Tensor]:
    """Returns the dictionary of tensors, which is the file's object or one of its entries."""
    for entries in (found, *(found.get(n) for n in _ENTRIES if isinstance(found, Mapping))):
        if isinstance(entries, Mapping) and entries:
            if all(isinstance(one, _Tensor) for one in entries.values()):
                return {str(name): tensor for name, tensor in entries.items()}
    held = (
        ", ".join(map(str, found))
        if isinstance(found, Mapping)
        else type(found).__name__.strip("_")
    )
    raise _Refused(
        f"contains {held or 'nothing'}; wanted a dictionary of tensors, or one with the key "
        f"{_ENTRIES[0]}"
    )


def _numbers(raw: bytes, storage: _Storage, order: bytes) -> np.ndarray:
    if len(raw) != storage.count * storage.dtype.itemsize:
        raise ValueError(
            f"the storage {storage.key} has {len(raw)} bytes, wanted {storage.count} numbers of "
            f"{storage.dtype.itemsize} bytes"
        )
    array = np.frombuffer(raw, storage.dtype)
    return array.byteswap() if order.strip() == b"big" else array


def _array(tensor: _Tensor, storages: Mapping[str, np.ndarray]) -> np.ndarray:
    numbers, (_, offset, shape, strides) = storages[tensor.storage.key], tensor
    size = int(np.prod(shape, dtype=object)) if shape else 1
    reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if size else -1
    if size > len(numbers) or offset + reach >= len(numbers):
        raise ValueError(f"a tensor of shape {shape} reaches beyond its storage")
    if not size:
        return np.zeros(shape, numbers.dtype)
    apart = [step * numbers.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(numbers[offset:], shape, apart).copy()
