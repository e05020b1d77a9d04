"""Loading trained runs: configuration, record and checkpoint."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from jaxatr import config as configuration
from jaxatr import files, forms
from jaxatr.resolve import imported, resolve
from jaxatr.training.checkpoints import load_snapshot
from jaxatr.training.folder import EVALUATION, load_config, variables_of
from jaxatr.training.predictor import Predictor
from jaxatr.training.record import CONFIG, read_record
from jaxatr.training.snapshot import Snapshot
from jaxatr.training.task import Task, TrainedRun
from jaxatr.typing import Config

Checkpoint = Literal["best", "latest"] | int
"""A checkpoint: the latest, the one with the best evaluation, or that of a step."""

_Snapshots = dict[tuple[Path, str | int], Snapshot]
_READ: ContextVar[_Snapshots | None] = ContextVar("snapshots read in loading_once", default=None)


@contextlib.contextmanager
def loading_once() -> Iterator[None]:
    """Reads each checkpoint from disk only once in this context, however often it is loaded.

    For a program that uses one run for several purposes, such as predictions and explanations.
    The loaded runs share their variables, and are all of the same step even if the run is still
    training.
    """
    before = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(before)


def task_of(workdir: str | os.PathLike) -> type[Task]:
    """Returns the task of a run.

    Args:
      workdir: the run's folder. If ``record.json`` names no task, as in earlier versions, the
        configuration is used.

    Raises:
      ValueError: ``workdir`` is not a run's folder, or its task cannot be imported.
    """
    config = load_config(workdir)
    return _task(workdir, config, read_record(workdir))


def _task(workdir: str | os.PathLike, config: Config, record: Mapping[str, Any]) -> type[Task]:
    name = record.get("task") or config.task
    if missing := [
        one for one in configuration.fields_of(name) if not configuration.has(config, one)
    ]:
        raise ValueError(
            f"{Path(workdir) / CONFIG}: it lacks 'task', or these fields of {name}: "
            f"{', '.join(missing)}"
        )
    return task_class(name).of_config(config)


def task_class(path: str) -> type[Task]:
    """Resolves the dotted path of a task.

    Raises:
      ValueError: there is no such object, or it is not a task.
    """
    task = resolve(path)
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise ValueError(f"task: {path} is not a subclass of jaxatr.training.Task")
    return task


def load_evaluation(
    workdir: str | os.PathLike, place: str | os.PathLike | None = None
) -> dict[str, Any]:
    """Reads the recorded evaluation of a run.

    Args:
      workdir: the run's folder.
      place: the folder of its evaluation on another set, instead of that on its own test.

    Raises:
      ValueError: the run has not been evaluated yet, or the file is damaged or has a field of the
        wrong type.
    """
    path = Path(workdir if place is None else place) / EVALUATION
    if not path.is_file():
        raise ValueError(f"{workdir} is not evaluated yet: jaxatr evaluate --workdir={workdir}")
    evaluation = files.read_fields(path)
    forms.check(evaluation, {**_EVALUATION, **task_of(workdir).evaluation_form}, path)
    return evaluation


#: The form of every evaluation, as far as programs take it apart.
_EVALUATION: forms.ObjectForm = {
    "checkpoint": {"which": forms.TEXT, "step": forms.COUNT},
    **dict.fromkeys(("known", "unknown"), forms.TEXTS),
    **dict.fromkeys(("dataset", "split"), {}),
}


def load_run(workdir: str | os.PathLike, checkpoint: Checkpoint = "latest") -> TrainedRun:
    """Loads a run at a checkpoint.

    Args:
      workdir: the run's folder.
      checkpoint: ``"latest"``, ``"best"`` (on the validation data) or a step.

    Raises:
      ValueError: ``workdir`` is not a run's folder, or has no such checkpoint.
      CheckpointError: the checkpoint is corrupt.
    """
    config, record = load_config(workdir), read_record(workdir)
    snapshot = _snapshot(workdir, checkpoint)
    if checkpoint == "latest":
        warn_unfinished(workdir, record, snapshot.step)
    task = _task(workdir, config, record)
    variables = variables_of(snapshot)
    run = TrainedRun(Path(workdir), task, config, record, snapshot.step, variables)
    return task.loaded(run)


def warn_unfinished(workdir: str | os.PathLike, record: Mapping[str, Any], step: int) -> None:
    """Warns if a run's latest checkpoint, that of a step, is not of its last step.

    Args:
      workdir: the run's folder.
      record: the content of its ``record.json``.
      step: the checkpoint's step.
    """
    if step < (steps := record.get("steps", 0)):
        warnings.warn(
            f"{workdir}: the training is not finished: this is step {step} of {steps}",
            stacklevel=3,
        )


def _snapshot(workdir: str | os.PathLike, checkpoint: Checkpoint) -> Snapshot:
    read, key = _READ.get(), (Path(workdir).resolve(), checkpoint)
    if read is None:
        return load_snapshot(workdir, checkpoint)
    if key not in read:
        read[key] = load_snapshot(workdir, checkpoint)
    return read[key]


def predictor_class(task: type[Task]) -> type[Predictor]:
    """Returns the predictor class of a task.

    Raises:
      ValueError: the task has no predictor.
    """
    if not task.predictor:
        raise ValueError(f"a run of {task.kind()} cannot predict: the task has no predictor")
    found = imported(task.predictor)
    if not (isinstance(found, type) and issubclass(found, Predictor)):
        raise ValueError(
            f"{task.__name__}.predictor: {task.predictor} is not a subclass of "
            "jaxatr.training.Predictor"
        )
    return found


def check_predictor(run: TrainedRun, wanted: type[Predictor]) -> None:
    """Checks that a predictor class can load a run.

    Raises:
      ValueError: the run's task has another predictor class, which the message names.
    """
    if (correct := predictor_class(run.task)) is not wanted:
        raise ValueError(
            f"{run.workdir} is a run of {run.task.kind()}, which {correct.__name__} loads and "
            f"{wanted.__name__} does not: jaxatr.load({str(run.workdir)!r}), or "
            f"jaxatr {run.task.usage.format(workdir=run.workdir)}"
        )
