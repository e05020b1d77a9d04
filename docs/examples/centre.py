"""The distance to the mean features."""

from typing import NamedTuple

import numpy as np

from jaxatr.openset.score import Score


class Centre(NamedTuple):
    mean: np.ndarray  # [d]


def fit(features):
    return Centre(features.mean(axis=0))


def score(model, features):
    return -np.linalg.norm(features - model.mean, axis=1)


PART = Score.of_arrays("centre", "distance to the centre", score, fit)
