"""Further epochs of a finished run."""

import copy
import os
import shlex
from typing import Any

import numpy as np

from jaxatr import training
from jaxatr.tasks.optimizer import rate_schedule
from jaxatr.training import Task
from jaxatr.typing import Config

LENGTH = ("train.epochs", "train.steps")
"""Fields of the length of a training."""


def prolonged(config: Config, task: Task, workdir: str | os.PathLike, epochs: int) -> Config:
    """Returns the configuration of a finished run with further epochs.

    Args:
      config: the run's configuration.
      task: its task.
      workdir: the run's folder.
      epochs: number of further passes over the training data.

    Raises:
      ValueError: the run is not finished, or is of a kind or a configuration whose training cannot
        be made longer.
    """
    if epochs < 1:
        raise ValueError(f"more_epochs: got {epochs}, wanted at least 1")
    other = "train another run of the wanted length"
    if task.beside(config):
        raise ValueError(
            f"more_epochs: {workdir} has trials (open_set.trials) of the former length: {other}"
        )
    if not task.phases:
        raise ValueError(f"more_epochs: {workdir} is a run of {task.kind()}: nothing is trained")
    if len(task.phases) > 1 or task.cycles > 1:
        raise ValueError(
            f"more_epochs: {workdir} is a run of {task.kind()} in several phases: {other}"
        )
    steps, done = task.phases[0].steps, max(training.saved_steps(workdir), default=0)
    if done < steps:
        raise ValueError(
            f"more_epochs: {workdir} has done {done} of {steps} steps: finish it first, by "
            f"jaxatr train --workdir={shlex.quote(os.fspath(workdir))}"
        )
    if done > steps:
        raise ValueError(
            f"more_epochs: {workdir} has done {done} steps, and its epochs have {steps} in this "
            f"version of jaxatr: {other}"
        )
    kept = training.read_record(workdir).get("kept_step")
    if kept is not None:
        raise ValueError(
            f"more_epochs: {workdir} ended with the parameters of step {kept}, the best "
            f"(train.end_with_best): {other}"
        )
    longer = copy.deepcopy(config)
    if longer.train.steps:
        longer.train.steps += round(epochs * task.steps_per_epoch)
    else:
        longer.train.epochs += epochs
    return longer


def described(
    config: Config, steps: int, steps_per_epoch: int | float, *, before: int
) -> dict[str, Any]:
    """Describes the schedule of further epochs, for the record.

    The learning rate follows the schedule of a training of the whole length, from the step at which
    the run ended. A cosine schedule, which had fallen to zero, therefore begins above zero.

    Args:
      config: the configuration with the new length.
      steps: that length in steps.
      steps_per_epoch: steps of one pass over the training data.
      before: the step at which the run ended.

    Returns:
      ``from_step``, ``to_step`` and ``schedule``, a line.
    """
    rate = rate_schedule(config.optimizer, steps, steps_per_epoch)
    first, last = (float(np.asarray(rate(step))) for step in (before, steps - 1))
    line = (
        f"continuing from step {before} to {steps} by the {config.optimizer.schedule} schedule of "
        f"{steps} steps: learning rate {first:.3g} at step {before}, {last:.3g} at the end"
    )
    return {"from_step": before, "to_step": steps, "schedule": line}
