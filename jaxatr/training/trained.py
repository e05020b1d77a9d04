"""A trained run, loaded: the one place that joins configuration, record and checkpoint."""

import os
from pathlib import Path
from typing import Literal

from jaxatr.resolve import resolve
from jaxatr.training.checkpoints import load_snapshot
from jaxatr.training.folder import load_config, variables_of
from jaxatr.training.predictor import Predictor
from jaxatr.training.record import read_record
from jaxatr.training.task import Task, TrainedRun

Checkpoint = Literal["best", "latest"] | int
"""Which checkpoint: the newest, the one with the best evaluation, or that of a step."""


def task_of(workdir: str | os.PathLike) -> type[Task]:
    """Finds the kind of a run.

    Args:
      workdir: the run's folder. Where ``record.json`` names no task, as in a folder of an earlier
        version, the configuration does.

    Raises:
      ValueError: no run, or its task is not on the import path.
    """
    config = load_config(workdir)
    return task_class(read_record(workdir).get("task") or config.task).of_config(config)


def task_class(path: str) -> type[Task]:
    """Resolves the dotted path of a task.

    Raises:
      ValueError: there is no such object, or it is no task.
    """
    found = resolve(path)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ValueError(f"task: {path} is no subclass of jaxatr.training.Task")
    return found


def load_run(workdir: str | os.PathLike, checkpoint: Checkpoint = "latest") -> TrainedRun:
    """Loads a run at a checkpoint.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation part) or a step.

    Raises:
      ValueError: no run, or no such checkpoint.
      CheckpointError: there is one, and it is not whole.
    """
    config, record = load_config(workdir), read_record(workdir)
    snapshot = load_snapshot(workdir, checkpoint)
    task = task_class(record.get("task") or config.task).of_config(config)
    return TrainedRun(Path(workdir), task, config, record, snapshot.step, variables_of(snapshot))


def predictor_class(task: type[Task]) -> type[Predictor]:
    """Finds what predicts with a kind of run.

    Raises:
      ValueError: the kind predicts nothing.
    """
    if not task.predictor:
        raise ValueError(f"a run of {task.__name__} predicts nothing")
    return resolve(task.predictor)


def check_predictor(run: TrainedRun, wanted: type[Predictor]) -> None:
    """Refuses to load a run as something that it is not.

    Args:
      run: the run.
      wanted: what it is loaded as.

    Raises:
      ValueError: the run's kind predicts by another class, which is named.
    """
    if (found := predictor_class(run.task)) is not wanted:
        raise ValueError(
            f"{run.workdir} is a run of {run.task.__name__}, which {found.__name__} loads and "
            f"{wanted.__name__} does not: jaxatr.load({str(run.workdir)!r})"
        )
