"""Trains what a score needs beside a finished run."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from jaxatr import openset, training
from jaxatr.parallel import wait_for_all
from jaxatr.resolve import nearest, resolve
from jaxatr.runs.training import make_task
from jaxatr.tasks.open_set.compared import trained_scores
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training.folder import load_config, variables_of, write_file
from jaxatr.typing import Config, PyTree

BASELINES = {score.training.baseline: score for score in openset.SCORES.values() if score.training}
"""Name of a baseline of the package, and of its folder, to the score that it brings."""


class Beside(NamedTuple):
    """A finished open-set run, and the folder of a training beside it.

    Attributes:
      task: of the run, with its data.
      config: of the run, which names the weights that it began with; :attr:`task` has forgotten
        them.
      variables: of the run's last checkpoint, for one device.
      folder: of the training.
      leaves: the file or folder there by which the score joins an evaluation.
      progress: show progress bars.
    """

    task: OpenSet
    config: Config
    variables: PyTree
    folder: Path
    leaves: Path
    progress: bool


def check_baselines(names: Collection[str]) -> dict[str, str]:
    """Finds the folders of baselines, by name.

    Args:
      names: of baselines, or ``my.module:SCORE``, of scores outside of the package.

    Raises:
      ValueError: there is no such baseline.
    """
    return {name: _training(_score(name)).baseline for name in names}


def train_baseline(workdir: str | os.PathLike, name: str, *, progress: bool = True) -> None:
    """Trains a baseline in its folder in a finished run's, or continues it.

    Args:
      workdir: the folder of the run that is compared with.
      name: of the baseline, or ``my.module:SCORE``, of a score outside of the package.
      progress: show progress bars.

    Raises:
      ValueError: there is no such baseline, or the run does not allow it; it is said why.
    """
    score = _score(name)
    own, config = _training(score), load_config(workdir)
    kind = training.task_of(workdir)
    if kind is not OpenSet or config.open_set.hold_out or config.open_set.negatives:
        raise ValueError(
            f"{workdir}: only an open-set run that is no part of a baseline can have one"
        )
    task = cast(OpenSet, make_task(config, workdir))
    snapshot = training.load_snapshot(workdir, "latest")
    if snapshot.step < (wanted := task.phases[0].steps):
        raise ValueError(
            f"{workdir} is at step {snapshot.step} of {wanted}: a baseline is trained beside a "
            "finished run"
        )
    if trained_scores(workdir, [score]):
        return
    folder = Path(workdir) / own.baseline
    leaves, train = folder / own.leaves, resolve(own.train)
    model = train(Beside(task, config, variables_of(snapshot), folder, leaves, progress))
    if model is not None:
        arrays: dict[str, Any] = {key: np.asarray(value) for key, value in model._asdict().items()}
        folder.mkdir(exist_ok=True)
        write_file(leaves, lambda file: np.savez(file, **arrays))
    wait_for_all(own.baseline)


def _score(name: str) -> openset.Score:
    if ":" in name:
        return openset.choose_scores([name])[0]
    if name not in BASELINES:
        raise ValueError(
            f"baselines: got {name!r}, wanted some of {', '.join(BASELINES)} and my.module:SCORE"
            f"{nearest(name, BASELINES)}"
        )
    return BASELINES[name]


def _training(score: openset.Score) -> openset.OwnTraining:
    if score.training is None:
        raise ValueError(f"baselines: the score {score.name} has no training of its own")
    return score.training
