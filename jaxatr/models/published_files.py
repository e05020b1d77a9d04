"""Finding, verifying and converting the weights of published networks.

Weights are searched for in the folder named by the user, then in the installed package that
contains them. They are converted once. The converted file is stored in the user's cache folder,
under the SHA-256 of its source and its own SHA-256, and is used even if the source no longer
exists.
"""

import hashlib
import importlib.util
import os
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from jaxatr import files
from jaxatr.models import tfjs_file
from jaxatr.models.published.network import PublishedNetwork, WeightFile
from jaxatr.models.weight_file import arrays_of, read_content
from jaxatr.resolve import imported

VARIABLE = "JAXATR_WEIGHTS_DIR"
_ONNX = "jaxatr.onnx.reader.model:load"


def tensors_of(
    network: PublishedNetwork, folder: str | os.PathLike = ""
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Loads a network's tensors by their published names.

    Args:
      network: the network.
      folder: folder that contains one of the network's files, directly or in a subfolder with the
        network's name; by default ``$JAXATR_WEIGHTS_DIR``.

    Returns:
      ``(tensors, source)``: arrays by name, and provenance for a run's record: ``name``, ``path``
      (of the file, or of the converted file if the former no longer exists), ``sha256`` of the
      file, and ``licence``.

    Raises:
      ValueError: the weights are not on this machine (the message tells how to get them), or a file
        has the expected name but not the expected content.
    """
    place = str(folder) or os.environ.get(VARIABLE, "")
    if place and not Path(place).expanduser().is_dir():
        setting = "model.weights_dir" if str(folder) else VARIABLE
        raise ValueError(f"{setting}: there is no folder {place!r}")
    found = _find(network, place)
    if found is None:
        for file in network.files:
            if (path := _converted(file)) is not None:
                return _read(path), _source(network, path, file)
        raise ValueError(_advice(network, place))
    path, file = found
    content, digest = read_content(path)
    if digest != file.sha256:
        raise ValueError(
            f"model.pretrained: {path} does not contain {network.name}: its SHA-256 is {digest}, "
            f"wanted {file.sha256}"
        )
    converted = _converted(file) or _convert(network, path, content, file)
    return _read(converted), _source(network, path, file)


def _find(network: PublishedNetwork, folder: str) -> tuple[Path, WeightFile] | None:
    """Returns the first of a network's files that exists."""
    named = Path(folder).expanduser()
    places = [named, named / network.name] if folder else []
    if network.package and (package := _package(network.package)) is not None:
        places.append(package / network.folder)
    found = ((place / file.name, file) for place in places for file in network.files)
    return next(((path, file) for path, file in found if path.is_file()), None)


def _package(name: str) -> Path | None:
    """Returns the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _advice(network: PublishedNetwork, folder: str) -> str:
    names = " or ".join(file.name for file in network.files)
    return (
        f"model.pretrained: the weights of {network.name} are not on this machine: "
        f"{network.command} ({network.licence}), {'or' if network.package else 'and'} put {names} "
        f"into {folder or 'a folder and set model.weights_dir to it'}"
    )


def _source(network: PublishedNetwork, path: Path, file: WeightFile) -> dict[str, str]:
    return {
        "name": network.name,
        "path": str(path),
        "sha256": file.sha256,
        "licence": network.licence,
    }


def _converted(file: WeightFile) -> Path | None:
    """Returns the path of the file's converted form if the cache has an intact one."""
    for path in sorted(_folder(file).glob("*.safetensors")):
        if hashlib.sha256(path.read_bytes()).hexdigest() == path.stem:
            return path
    return None


def _convert(network: PublishedNetwork, path: Path, content: bytes, file: WeightFile) -> Path:
    if path.suffix == ".onnx":
        tensors = _of_onnx(path)
    else:
        read = tfjs_file.read_tensors if path.suffix == ".tgz" else arrays_of
        tensors = read(content, str(path))
    if network.adapt is not None:
        tensors = network.adapt(tensors)
    # Scalars are counters and activation bounds, not weights.
    weights = {n: np.ascontiguousarray(array) for n, array in tensors.items() if array.ndim}
    written = save(weights)
    target = _folder(file) / f"{hashlib.sha256(written).hexdigest()}.safetensors"
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(target) as out:
        out.write(written)
    return target


def _folder(file: WeightFile) -> Path:
    return files.cache_folder() / "weights" / file.sha256


def _read(path: Path) -> dict[str, np.ndarray]:
    return arrays_of(path.read_bytes(), str(path))


def _of_onnx(path: Path) -> dict[str, np.ndarray]:
    # Resolved late: jaxatr.onnx is a higher layer and an optional dependency.
    variables = imported(_ONNX)(path).variables
    both = {**variables["params"], **variables["batch_stats"]}
    return {name: np.asarray(array) for name, array in both.items()}
