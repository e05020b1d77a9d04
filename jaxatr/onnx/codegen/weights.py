"""Reads and writes the weights of a generated module: a safetensors file of arrays by path."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

from jaxatr.files import MissingFileError
from jaxatr.onnx.ops.precision import wide

COLLECTIONS = ("params", "batch_stats", "constants")


def load_weights(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Loads the variables of a generated module.

    Args:
      path: path of the ``weights.safetensors`` that :func:`jaxatr.onnx.generate` wrote.

    Returns:
      ``{"params": …, "batch_stats": …, "constants": …}``, the variables for the module's
      ``apply``.

    Raises:
      ValueError: there is no such file, it is not a safetensors file, or an array is in none of
        the three collections.
    """
    if not Path(path).is_file():
        raise MissingFileError(f"path: there is no file {str(path)!r}")
    try:
        flat = load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"path: {str(path)!r} is not a safetensors file ({error})") from error
    variables: dict[str, Any] = {collection: {} for collection in COLLECTIONS}
    with wide():  # keeps 64-bit arrays
        for name, value in flat.items():
            *parents, leaf = name.split("/")
            if not parents or parents[0] not in COLLECTIONS:
                raise ValueError(f"path: got the array {name!r}, wanted one in {COLLECTIONS}")
            node = variables
            for parent in parents:
                node = node.setdefault(parent, {})
                if not isinstance(node, dict):
                    raise ValueError(f"path: {name!r} is inside of an array")
            if leaf in node:
                raise ValueError(f"path: {name!r} is an array and a folder of arrays")
            node[leaf] = jax.device_put(value)
    return variables


def save_weights(path: Path, flat: Mapping[tuple[str, ...], Any]) -> None:
    """Writes arrays, whose keys are (collection, modules…, name)."""
    arrays = {"/".join(names): np.array(value, order="C") for names, value in flat.items()}
    save_file(arrays, path)
