"""Trains ConfLabel's detector, a classifier of known versus unknown by gradient norms.

The run's network is trained again on two thirds of the known classes. The detector is fitted to
gradient norms of that network on validation examples (known) and held-out classes (unknown).
"""

import copy
from typing import cast

import jax

from jaxatr.openset import conflabel_detector
from jaxatr.runs.baselines.beside import Beside
from jaxatr.runs.training import make_task, train_run
from jaxatr.tasks.open_set.task import OpenSet
from jaxatr.training import load_snapshot, variables_of


def train(run: Beside) -> conflabel_detector.NormDetector:
    """Trains a network without some known classes, and fits the detector to its gradients.

    Raises:
      ValueError: there are fewer than three known classes, or no validation examples.
    """
    config, known = copy.deepcopy(run.config), len(run.task.split.known)
    if known < 3:
        raise ValueError(f"conflabel: got {known} known classes, wanted 3 or more: one is held out")
    if not (config.data.validation or config.data.fold):
        raise ValueError("conflabel: the detector needs validation examples: set data.validation")
    config.open_set.hold_out = max(1, known // 3)
    train_run(config, run.folder, progress=run.progress)
    task = cast(OpenSet, make_task(config, run.folder))
    variables = variables_of(load_snapshot(run.folder, "latest"))
    known_norms, unknown_norms = (
        task.outputs(variables, part, ("gradient_norms",)).more["gradient_norms"]
        for part in ("validation", "held_out")
    )
    return conflabel_detector.fit(known_norms, unknown_norms, key=jax.random.key(config.seed))
