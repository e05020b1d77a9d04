"""Trials: short trainings without some known classes, for the score that decides, and its estimate.

Classes can also be held out from a trained network's outputs (:mod:`jaxatr.openset.trials`), at
no cost. But that network was trained to separate them from the others, which favours scores of its
last layers. A class that was held out of the training is like an unknown one to the network.
"""

import copy
from collections.abc import Mapping

from jaxatr.tasks.limits import check_limits
from jaxatr.tasks.open_set.deciders import AUTO, DEFAULT
from jaxatr.typing import Config

_FEWEST = 3  # known classes: at least two must remain


def configurations(config: Config, known: int, steps: int) -> Mapping[str, Config]:
    """Returns the configurations of a run's trials, by their folders within the run's folder.

    Raises:
      ValueError: a field is out of range.
    """
    fields = config.open_set
    if "trials" not in fields or fields.score not in (AUTO, DEFAULT):
        return {}
    if fields.negatives or fields.hold_out:
        return {}
    check_limits(
        config,
        open_set__trials=(fields.trials >= 0, "0 (none) or more"),
        open_set__trial_share=(0 < fields.trial_share <= 1, "a share in (0, 1]"),
    )
    validation = config.data.validation or config.data.fold
    if fields.trials and (known < _FEWEST or not validation):
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
