"""The files of a run's folder: their names, reading and writing."""

import json
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

    A field that did not exist yet when the run was trained has its default.

    Raises:
      ValueError: ``workdir`` is no run folder, or its task is not on the import path.
    """
    path = Path(workdir) / "config.json"
    if not path.is_file():
        raise ValueError(f"{workdir} is no run folder: there is no {path.name} in it")
    return configuration.completed(json.loads(path.read_text(encoding="utf-8")))


def load_evaluation(workdir: str | os.PathLike) -> dict[str, Any]:
    """Reads the recorded evaluation of a run.

    Raises:
      ValueError: it is not evaluated yet.
    """
    path = Path(workdir) / EVALUATION
    if not path.is_file():
        raise ValueError(f"{workdir} is not evaluated yet: jaxatr evaluate --workdir={workdir}")
    return json.loads(path.read_text(encoding="utf-8"))


def variables_of(snapshot: Snapshot) -> PyTree:
    """Returns the variables for a network's ``apply``, from a checkpoint.

    Of a run with an average of its parameters, that average.
    """
    params = evaluated_params(snapshot.state["params"], snapshot.state["opt_state"])
    return {"params": params, **snapshot.state["model_state"]}


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Writes a file, all of it or nothing, in one of the processes.

    Args:
      path: of the file.
      write: takes the open binary file.
    """
    if jax.process_index():
        return  # every process has the result, one writes it
    with files.replacing(path) as file:
        write(file)
