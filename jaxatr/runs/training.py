"""A run's training, from its configuration."""

import copy
import os
from collections.abc import Callable
from pathlib import Path

from jaxatr import bundled, data, training
from jaxatr.tasks.pretrained import begun
from jaxatr.training import Task, task_class
from jaxatr.typing import Config

_FREE = ("data.source",)  # the data counts by its fingerprint, not by where it lies


def train_run(
    config: Config | str,
    workdir: str | os.PathLike,
    *,
    progress: bool = True,
    begun_in: Callable[[Path], None] | None = None,
) -> None:
    """Trains what ``config`` describes, or continues the run in ``workdir``; does not evaluate it.

    Args:
      config: a full configuration, or the name of a bundled one: ``"cbc:smoke"``.
      workdir: the run's folder, created where missing.
      progress: show a progress bar.
      begun_in: called with the run's folder when that is made, before the first step.

    Raises:
      ValueError: the configuration is wrong or is not that of the run in ``workdir``, or what the
        run depends on (its data, the network that it explains) has changed since it began.
      training.NonFiniteLoss: the training diverged.
      training.Preempted: the run was told to stop, and has saved.
    """
    full: Config = bundled.load(config) if isinstance(config, str) else config
    if (written := data.listed(full.open_set.split)) != full.open_set.split:
        full = copy.deepcopy(full)
        full.open_set.split = written  # the file may change or go
    free = (*_FREE, *task_class(full.task).free_fields)
    training.check_config(workdir, full, free=free)  # before any data is prepared for nothing
    task = make_task(full, workdir)
    task.check_continues(workdir, training.read_record(workdir))
    training.record_config(workdir, full, free=free)
    training.update_record(workdir, task=full.task, **task.record)
    if begun_in is not None:
        begun_in(Path(workdir))
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
        end_with_best=_ends_with_best(full),
    )
    for folder, other in task.beside(full).items():
        train_run(other, Path(workdir) / folder, progress=progress)
    decided = task.finished(result.variables, Path(workdir), result.step)
    training.update_record(workdir, **decided)


def _ends_with_best(config: Config) -> bool:
    chosen = config.train.end_with_best
    return bool(config.model.pretrained) if chosen is None else chosen


def make_task(config: Config, workdir: str | os.PathLike) -> Task:
    """Makes the task of a run.

    Args:
      config: a full configuration.
      workdir: the run's folder. Of a run that has begun, the weights that it began with are not
        read again: they may be gone.

    Raises:
      ValueError: the configuration is wrong, or its data is missing.
    """
    if training.saved_steps(workdir):
        config = begun(config)
    return task_class(config.task).of_config(config)(config)
