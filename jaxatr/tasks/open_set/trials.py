"""Short trainings without some known classes, by which the score that decides is chosen.

Classes can be left out of a finished network's outputs too (:mod:`jaxatr.openset.held_out`), at no
cost; but that network was trained to tell them from the others, which favours the scores of its
last layers. A network that never saw a class finds it as strange as an unknown one.
"""

import copy
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from jaxatr import openset, training
from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.scored import Deciding, head
from jaxatr.tasks.pretrained import begun
from jaxatr.training.folder import load_config, variables_of
from jaxatr.typing import Config

_FEWEST = 3  # known classes, as two have to be left


def configurations(config: Config, known: int, steps: int) -> Mapping[str, Config]:
    """Makes the configurations of a run's trials, by their folders in the run's.

    Args:
      config: the run's.
      known: its number of known classes.
      steps: of its training.

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
            f"data.validation={config.data.validation}, wanted {_FEWEST} or more and validation "
            "examples"
        )
    made = {}
    for turn in range(fields.trials):
        own = copy.deepcopy(config)
        own.open_set.trials, own.open_set.hold_out_turn = 0, turn
        own.open_set.hold_out = min(max(1, round(known / 3)), known - 2)
        own.train.steps = max(1, round(fields.trial_share * steps))
        own.train.keep = 1
        made[f"trials/{turn}"] = own
    return made


def load(task: Deciding, workdir: Path, needs: Collection[str]) -> list[openset.Trial]:
    """Computes the outputs of a run's trials; none, with a warning, where one is missing.

    Args:
      task: the run's.
      workdir: the run's folder.
      needs: of the scores that are compared.
    """
    folders, found = [workdir / name for name in task.beside(task.config)], []
    if missing := [folder for folder in folders if not training.saved_steps(folder)]:
        warnings.warn(
            f"open_set.trials: there is no trained run in {missing[0]}, so classes are left out of "
            "the finished network's outputs instead",
            stacklevel=2,
        )
        return []
    for folder in folders:
        config = begun(load_config(folder))  # the checkpoint has what became of its weights
        trial, snapshot = type(task)(config), training.load_snapshot(folder, "latest")
        variables = variables_of(snapshot)
        outputs = {
            part: trial.decided_outputs(variables, part, needs)
            for part in ("train", "validation", "held_out")
        }
        both = openset.concatenated([outputs["validation"], outputs["held_out"]])
        left_out = ", ".join(trial.record["split"]["unknown"])
        found.append(openset.Trial(left_out, outputs["train"], both, head(variables)))
    return found
