"""Trains runs from their configurations."""

import copy
import os
from collections.abc import Callable, Collection
from pathlib import Path

from jaxatr import bundled, data, resolve, training
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Task, task_class
from jaxatr.typing import Config

_FREE = ("data.source",)  # the fingerprint identifies the data, not its location


def train_run(
    config: Config | str,
    workdir: str | os.PathLike,
    *,
    progress: bool = True,
    begun_in: Callable[[Path], None] | None = None,
    trained: Callable[[], None] | None = None,
) -> None:
    """Trains a run from a configuration, or continues the one in ``workdir``, without evaluation.

    Args:
      config: a full configuration, or the name of a bundled one: ``"cbc:smoke"``.
      workdir: the run's folder; it is created if missing.
      progress: show a progress bar.
      begun_in: called with the run's folder once it is created, before the first step.
      trained: called after the last step, before the score that decides is chosen and fitted.

    Raises:
      ValueError: the configuration is invalid or differs from that of the run in ``workdir``, or
        an input of the run (its data, the network that it explains) has changed since it began;
        or another process is training in ``workdir``.
      training.NonFiniteLoss: the training diverged.
      training.Preempted: the process was asked to stop; a checkpoint is saved.
    """
    full: Config = bundled.load(config) if isinstance(config, str) else config
    resolve.trust_names_in(full.to_dict())  # the user's own
    if (split := data.listed(full.open_set.split)) != full.open_set.split:
        full = copy.deepcopy(full)
        full.open_set.split = split  # the split's content: its file may change or disappear
    if full.data.source and Path(full.data.source).expanduser().exists():
        full = copy.deepcopy(full)  # found again from another working directory
        full.data.source = str(Path(full.data.source).expanduser().absolute())
    free = (*_FREE, *task_class(full.task).free_fields)
    training.check_config(workdir, full, free=free)  # before any data is prepared
    with training.training_alone(workdir):
        _train(full, Path(workdir), free, progress, begun_in, trained)


def _train(
    full: Config,
    workdir: Path,
    free: Collection[str],
    progress: bool,
    begun_in: Callable[[Path], None] | None,
    trained: Callable[[], None] | None,
) -> None:
    task = make_task(full, workdir)
    task.check_continues(workdir, training.read_record(workdir))
    training.record_config(workdir, full, free=free)
    training.update_record(workdir, task=full.task, **task.record)
    if begun_in is not None:
        begun_in(workdir)
    result = training.train(
        task,
        workdir=workdir,
        config=full,
        evaluate_every=max(1, round(full.train.evaluate_every * task.steps_per_epoch)),
        checkpoint_every=full.train.checkpoint_every,
        log_every=full.train.log_every,
        keep=full.train.keep,
        seed=full.seed,
        progress=progress,
        free_fields=free,
        find_kernels=full.kernels.find,
        ema=full.train.ema,
        remat=full.train.remat,
        end_with_best=_ends_with_best(full),
    )
    for folder, other in task.beside(full).items():
        train_run(other, workdir / folder, progress=progress)
    if trained is not None:
        trained()
    decided = task.finished(result.variables, workdir, result.step)
    training.update_record(workdir, **decided)


def _ends_with_best(config: Config) -> bool:
    chosen = config.train.end_with_best
    return bool(config.model.pretrained) if chosen is None else chosen


def make_task(config: Config, workdir: str | os.PathLike) -> Task:
    """Makes the task of a run.

    Args:
      config: a full configuration.
      workdir: the run's folder. If it has a checkpoint, pretrained weights are not read again,
        because their file may no longer exist.

    Raises:
      ValueError: the configuration is invalid, or its data is missing.
    """
    if training.saved_steps(workdir):
        config = begun(config)
    return task_class(config.task).of_config(config)(config)
