"""Trials: short trainings without some known classes, for choosing the score that decides.

Classes can also be held out from a trained network's outputs (:mod:`jaxatr.openset.trials`), at
no cost. But that network was trained to separate them from the others, which favours scores of its
last layers. A class that was held out of the training is like an unknown one to the network.
"""

import copy
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from jaxatr import openset, training
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.scored import MOST_COMPARED, Deciding, head
from jaxatr.tasks.pretrained import begun
from jaxatr.training.folder import load_config, variables_of
from jaxatr.typing import Config

_FEWEST = 3  # known classes: at least two must remain


def configurations(config: Config, known: int, steps: int) -> Mapping[str, Config]:
    """Returns the configurations of a run's trials, by their folders within the run's folder.

    Args:
      config: the run's configuration.
      known: number of known classes.
      steps: length of the run's training in steps.

    Raises:
      ValueError: a field is out of range.
    """
    fields = config.open_set
    if "trials" not in fields or fields.score != "auto" or fields.negatives or fields.hold_out:
        return {}
    check_limits(
        config,
        open_set__trials=(fields.trials >= 0, "0 (none) or more"),
        open_set__trial_share=(0 < fields.trial_share <= 1, "a share in (0, 1]"),
    )
    if fields.trials and (known < _FEWEST or not config.data.validation):
        raise ValueError(
            f"open_set.trials: got {fields.trials} with {known} known classes and "
            f"data.validation={config.data.validation}, wanted {_FEWEST} or more known "
            "classes, and validation examples"
        )
    made = {}
    for turn in range(fields.trials):
        trial = copy.deepcopy(config)
        trial.open_set.trials, trial.open_set.hold_out_turn = 0, turn
        trial.open_set.hold_out = min(max(1, round(known / 3)), known - 2)
        trial.train.steps = max(1, round(fields.trial_share * steps))
        trial.train.keep = 1
        made[f"trials/{turn}"] = trial
    return made


def folders_of(task: Deciding, workdir: Path) -> list[Path]:
    """Lists the folders of a run's trials; empty, with a warning, if one is missing.

    Args:
      task: the run's task.
      workdir: the run's folder.
    """
    folders = [workdir / name for name in task.beside(task.config)]
    if missing := [folder for folder in folders if not training.saved_steps(folder)]:
        warnings.warn(
            f"open_set.trials: there is no trained run in {missing[0]}, so classes are held out "
            "from the trained network's outputs instead",
            stacklevel=2,
        )
        return []
    return folders


def load(
    task: Deciding, folders: Iterable[Path], needs: Collection[str]
) -> Iterator[openset.Trial]:
    """Computes the outputs of trials one at a time, because those of many chips fill the memory.

    Args:
      task: the run's task.
      folders: the trials' folders.
      needs: names of the inputs of the scores to compare.
    """
    for folder in folders:
        config = begun(load_config(folder))  # the weights are in the checkpoint
        trial, snapshot = type(task)(config), training.load_snapshot(folder, "latest")
        variables = variables_of(snapshot)
        both = openset.concatenated(
            [trial.decided_outputs(variables, part, needs) for part in ("validation", "held_out")]
        )
        yield openset.Trial(
            ", ".join(trial.record["split"]["unknown"]),
            trial.sampled_outputs(variables, MOST_COMPARED, needs),
            both,
            head(variables),
        )
