"""A score with a training of its own: how far the largest logit is from its usual height."""

from typing import NamedTuple

import numpy as np

from jaxatr.openset import OwnTraining, Score


class Usual(NamedTuple):
    height: np.ndarray  # []


def train(run):
    """Finds how high the largest logit is on validation examples."""
    outputs = run.task.outputs(run.variables, "validation")
    return Usual(outputs.logits.max(axis=1).mean())


SCORE = Score(
    name="usual",
    title="distance from the usual height",
    score=lambda model, outputs: -np.abs(outputs.logits.max(axis=1) - model.height),
    training=OwnTraining("usual", "own_training:train", "model.npz", model=Usual),
)
