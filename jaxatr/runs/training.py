"""A run's training, from its configuration."""

import copy
import os
from typing import Any

from jaxatr import training
from jaxatr.resolve import resolve
from jaxatr.runs.pretrained import read_weights
from jaxatr.runs.target import load_target
from jaxatr.training.folder import refuse_changed_data, refuse_other_target
from jaxatr.typing import Config

# What counts of data is its fingerprint, not where it lies.
_FREE = ("data.source", "open_set.negatives")


def train_run(config: Config, workdir: str | os.PathLike, *, progress: bool = True) -> None:
    """Trains what ``config`` describes, or continues the run in ``workdir``; does not evaluate it.

    Args:
      config: a full configuration (``jaxatr.config.base`` with overrides).
      workdir: the run's folder, created where missing.
      progress: show a progress bar.

    Raises:
      ValueError: the configuration is wrong, is not that of the run in ``workdir``, or the data
        or the network that is explained has changed since that run began.
      training.NonFiniteLoss: the training diverged.
      training.Preempted: the run was told to stop, and has saved.
    """
    make = resolve(config.task)
    free = (*_FREE, *getattr(make, "free_fields", ()))
    training.check_config(workdir, config, free=free)  # before any data is prepared for nothing
    task = make_task(config, workdir)
    refuse_changed_data(workdir, task.record)
    refuse_other_target(workdir, task.record)
    training.record_config(workdir, config, free=free)
    training.update_record(workdir, **task.record)
    training.train(
        task,
        workdir=workdir,
        config=config,
        evaluate_every=max(1, round(config.train.evaluate_every * task.steps_per_epoch)),
        checkpoint_every=config.train.checkpoint_every,
        log_every=config.train.log_every,
        keep=config.train.keep,
        seed=config.seed,
        progress=progress,
        free_fields=free,
        find_kernels=config.kernels.find,
    )


def make_task(config: Config, workdir: str | os.PathLike) -> Any:
    """Returns the task of a configuration, with what it takes from other runs and files.

    Args:
      config: a full configuration.
      workdir: the run's folder; where the run has begun its first weights are not read again.

    Raises:
      ValueError: as :func:`train_run`.
    """
    make, options = resolve(config.task), {}
    if config.model.pretrained:
        if training.saved_steps(workdir):  # it has begun: the weights may be gone
            config = copy.deepcopy(config)
            config.model.pretrained = ""
        else:
            options["read"] = read_weights
    if config.distillation.target:
        options["load"] = load_target
    return make(config, **options)
