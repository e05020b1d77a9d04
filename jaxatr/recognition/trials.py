"""The outputs of trials (:mod:`jaxatr.tasks.open_set.trials`), with which scores are compared."""

import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from jaxatr import openset, training
from jaxatr.recognition.session import head
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.tasks.pretrained import begun
from jaxatr.training.folder import load_config, variables_of

MOST_COMPARED = 10_000
"""Largest number of training examples with which scores are compared, to bound memory and time."""


def folders_of(task: OpenSet, workdir: Path) -> list[Path]:
    """Lists the folders of a run's trials; empty, with a warning, if one is missing."""
    folders = [workdir / name for name in task.beside(task.config)]
    if missing := [folder for folder in folders if not training.saved_steps(folder)]:
        warnings.warn(
            f"open_set.trials: there is no trained run in {missing[0]}, so classes are held out "
            "from the trained network's outputs instead",
            stacklevel=2,
        )
        return []
    return folders


def load(task: OpenSet, folders: Iterable[Path], needs: Collection[str]) -> Iterator[openset.Trial]:
    """Computes the outputs of trials one at a time, because those of many chips fill the memory.

    Args:
      task: the run's task.
      folders: the trials' folders.
      needs: names of the inputs of the scores to compare.
    """
    for folder in folders:
        config = begun(load_config(folder))  # the weights are in the checkpoint
        trial, snapshot = type(task)(config), training.load_snapshot(folder, "latest")
        variables = trial.with_boxes(variables_of(snapshot), folder, snapshot.step)
        both = openset.concatenated(
            [trial.decided_outputs(variables, part, needs) for part in ("validation", "held_out")]
        )
        yield openset.Trial(
            ", ".join(trial.record["split"]["unknown"]),
            trial.sampled_outputs(variables, MOST_COMPARED, needs),
            both,
            head(variables),
        )
