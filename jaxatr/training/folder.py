"""The files of a run's folder: their names, reading and writing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxatr import config as configuration
from jaxatr import files
from jaxatr.training.average import evaluated_params
from jaxatr.training.snapshot import Snapshot
from jaxatr.typing import Config, PyTree

EVALUATION = "evaluation.json"
SCORES = "scores.npz"
THUMBNAILS = "thumbnails.npz"
INDEX = "index.npz"


def load_config(workdir: str | os.PathLike) -> Config:
    """Reads the configuration that a run was trained with.

    Fields that were added after the run was trained have their defaults.

    Raises:
      ValueError: ``workdir`` is not a run's folder, its configuration is damaged or was changed, or
        its task cannot be imported.
    """
    path = Path(workdir) / "config.json"
    if not path.is_file():
        raise ValueError(f"{workdir} is not a run's folder: it has no {path.name}")
    recorded = files.read_fields(path)
    try:
        return configuration.completed(recorded)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_evaluation(workdir: str | os.PathLike) -> dict[str, Any]:
    """Reads the recorded evaluation of a run.

    Raises:
      ValueError: the run has not been evaluated yet, or the file is damaged.
    """
    path = Path(workdir) / EVALUATION
    if not path.is_file():
        raise ValueError(f"{workdir} is not evaluated yet: jaxatr evaluate --workdir={workdir}")
    return files.read_fields(path)


def variables_of(snapshot: Snapshot) -> PyTree:
    """Returns a checkpoint's variables for a network's ``apply``.

    If the run averages its parameters, these are the averages.
    """
    params = evaluated_params(snapshot.state["params"], snapshot.state["opt_state"])
    return {"params": params, **snapshot.state["model_state"]}


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Writes a file atomically, from process 0 only.

    Args:
      path: path of the file.
      write: writes the content to an open binary file.
    """
    if jax.process_index():
        return  # every process has the result, only one writes it
    with files.replacing(path) as file:
        write(file)
