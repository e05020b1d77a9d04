"""Trains the baselines that scores need, beside a finished run."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from jaxatr import openset, training
from jaxatr.parallel import wait_for_all
from jaxatr.recognition.baselines import trained_scores
from jaxatr.resolve import imported, nearest, trust_names_in
from jaxatr.runs.training import make_task
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training.folder import load_config, variables_of, write_file
from jaxatr.typing import Config, PyTree

BASELINES = {score.training.baseline: score for score in openset.SCORES.values() if score.training}
"""Scores of the package's baselines, by the baseline's name, which is also that of its folder."""


class Beside(NamedTuple):
    """A finished open-set run, and the folder for a baseline's training beside it.

    Attributes:
      task: the run's task, with its data.
      config: the run's configuration. Unlike the task's, it names the pretrained weights.
      variables: variables of the run's last checkpoint, for one device.
      folder: the baseline's folder.
      leaves: the file or folder of the finished baseline, from which evaluations load the score.
      progress: show progress bars.
    """

    task: OpenSet
    config: Config
    variables: PyTree
    folder: Path
    leaves: Path
    progress: bool


def check_baselines(names: Collection[str]) -> dict[str, str]:
    """Returns the folder names of baselines, by name.

    Args:
      names: names of baselines; ``my.module:SCORE`` for a score outside the package.

    Raises:
      ValueError: there is no such baseline.
    """
    trust_names_in(names)  # the user's own
    return {name: _training(_score(name)).baseline for name in names}


def train_baseline(workdir: str | os.PathLike, name: str, *, progress: bool = True) -> None:
    """Trains a baseline in a subfolder of a finished run, or continues its training.

    Args:
      workdir: the folder of the run to compare with.
      name: name of the baseline; ``my.module:SCORE`` for a score outside the package.
      progress: show progress bars.

    Raises:
      ValueError: there is no such baseline, or the run cannot have one; the message gives the
        reason.
    """
    trust_names_in(name)  # the user's own
    score = _score(name)
    own, config = _training(score), load_config(workdir)
    kind = training.task_of(workdir)
    if kind is not OpenSet or config.open_set.hold_out or config.open_set.negatives:
        raise ValueError(
            f"{workdir}: wanted an open-set run of single images, not itself part of a baseline"
        )
    task = cast(OpenSet, make_task(config, workdir))
    snapshot = training.load_snapshot(workdir, "latest")
    if snapshot.step < (wanted := task.phases[0].steps):
        raise ValueError(
            f"{workdir} is at step {snapshot.step} of {wanted}: a baseline needs a finished run"
        )
    if trained_scores(workdir, [score]):
        return
    folder = Path(workdir) / own.baseline
    leaves, train = folder / own.leaves, imported(own.train)
    beside = Beside(task, config, variables_of(snapshot), folder, leaves, progress)
    with training.training_alone(folder):
        model = train(beside)
        if model is not None:
            arrays: dict[str, Any] = {k: np.asarray(value) for k, value in model._asdict().items()}
            write_file(leaves, lambda file: np.savez(file, **arrays))
    wait_for_all(own.baseline)


def _score(name: str) -> openset.Score:
    if ":" in name:
        return openset.choose_scores([name])[0]
    if name not in BASELINES:
        raise ValueError(
            f"baselines: got {name!r}, wanted some of {', '.join(BASELINES)} or my.module:SCORE"
            f"{nearest(name, BASELINES)}"
        )
    return BASELINES[name]


def _training(score: openset.Score) -> openset.OwnTraining:
    if score.training is None:
        raise ValueError(f"baselines: the score {score.name} needs no training")
    return score.training
