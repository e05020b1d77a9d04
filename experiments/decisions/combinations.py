"""Combinations of members that rules choose from, on standardised scores."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from experiments.decisions import rules, scores
from experiments.decisions.evidence import Evidence

Combine = Callable[..., np.ndarray]

COMBINE: dict[str, Combine] = {
    "sum": rules.mean,
    "sum within 2": functools.partial(rules.mean, cap=2.0),
    "sum within 3": functools.partial(rules.mean, cap=3.0),
    "sum within 5": functools.partial(rules.mean, cap=5.0),
    "power 1": functools.partial(rules.power_mean, power=1),
    "power 2": functools.partial(rules.power_mean, power=2),
    "power 4": functools.partial(rules.power_mean, power=4),
    "smallest": functools.partial(rules.power_mean, power=np.inf),
    "bent": rules.bent,
}
"""Ways of combining: the sum rule, and power means of what speaks against a chip."""

MAPS = ("spatial_stage1", "spatial_stage2", "spatial_stage3", "spatial_stage4")
FEATURES = ("nearest", "knn", "mahalanobis", "vim", "nndr_features")
HEADS = ("softmax", "mls", "cbc")
IMAGES = ("template", "nndr_image")

UNLIKE = ("spatial_stage2", "mahalanobis", "softmax", "template")
"""A map, the features, the head and the image."""
FIVE = ("spatial_stage2", "spatial_stage3", "nearest", "cbc", "template")
"""Two maps, the features, the binary classifiers and the image."""
SIX = ("spatial_stage2", "spatial_stage3", "nndr_stage3", "knn", "cbc", "template")
"""Two maps, the ratio on one of them, the features, the binary classifiers and the image."""
EIGHT = (
    "spatial_stage2", "nndr_stage2", "spatial_stage3", "nndr_stage3",
    "template", "nndr_image", "knn", "cbc",
)  # fmt: skip
"""The members of the package's default rule until ViM became one."""
MEMBERS = (*EIGHT, "vim")
"""The members of the package's default rule."""
NINE = (*EIGHT, "nndr_features")
"""Two maps, the features and the image, each by the nearest chip and by the two nearest classes,
and the binary classifiers."""
NAMED = {"four": UNLIKE, "five": FIVE, "six": SIX, "eight": EIGHT, "nine": NINE}


class Combination(NamedTuple):
    """A combination of members.

    Attributes:
      names: names of the members.
      combine: a name of :data:`COMBINE`.
      weights: weights of the members, for power means; None for equal ones.
    """

    names: tuple[str, ...]
    combine: str = "sum"
    weights: tuple[float, ...] | None = None

    def __str__(self) -> str:
        """Names the members and how they are combined."""
        return " + ".join(self.names) + (f" ({self.combine})" if len(self.names) > 1 else "")

    def on(self, e: Evidence, z: np.ndarray) -> np.ndarray:
        """Combines standardised members ``[n, m]`` of a task; returns ``[n]``."""
        own = z[:, e.columns(self.names)]
        if len(self.names) == 1:
            return own[:, 0]
        if self.weights is None:
            return COMBINE[self.combine](own)
        return COMBINE[self.combine](own, weights=np.array(self.weights))


def singles() -> list[Combination]:
    """Lists the single members."""
    return [Combination((name,)) for name in scores.SCORES]


def listed() -> list[Combination]:
    """Lists combinations of up to one member of each kind, or of two or four maps."""
    maps = [(one,) for one in MAPS] + [("spatial_stage2", "spatial_stage3"), MAPS, ()]
    kinds = [[(one,) for one in kind] + [()] for kind in (FEATURES, HEADS, IMAGES)]
    sets = [sum(one, ()) for one in itertools.product(maps, *kinds)]
    several = [names for names in sets if len(names) > 1]
    ways = ("sum within 2", "sum within 3", "sum within 5", "power 2", "smallest")
    return [Combination(names, way) for names in several for way in ways]


def unlike(names: Iterable[str]) -> bool:
    """Returns whether a map, the features, the head and the image are all among the members."""
    own = set(names)
    return all(own & set(kind) for kind in (MAPS, FEATURES, HEADS, IMAGES))


class Standardised(NamedTuple):
    """A task's members in units of its known chips.

    Attributes:
      evidence: the task.
      calibration: ``[n, m]``, known chips that no fit has used: those of the folds, or else the
        validation.
      validation: ``[n, m]``.
      test: ``[n, m]``.
      trials: each trial in units of its own known chips.
    """

    evidence: Evidence
    calibration: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    trials: tuple[rules.Trial, ...]


def standardised(e: Evidence) -> Standardised:
    """Standardises a task's members."""
    parts = [part.values for part in e.folds] or [e.validation.values]
    calibration = np.concatenate(parts)
    unit = rules.unit_of(calibration)
    trials = []
    for one in e.trials:
        own = rules.unit_of(one.known)
        trials.append(rules.Trial(*(rules.standardised(own, part) for part in one)))
    return Standardised(
        e,
        rules.standardised(unit, calibration),
        rules.standardised(unit, e.validation.values),
        rules.standardised(unit, e.test.values),
        tuple(trials),
    )


def area(scores: np.ndarray, known: np.ndarray) -> float:
    """Computes the AUROC, ties counting half; quicker than a library for many small arrays."""
    order = np.unique(scores, return_inverse=True, return_counts=True)
    _, inverse, counts = order
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    a, b = known.sum(), (~known).sum()
    return float((ranks[known].sum() - a * (a + 1) / 2) / (a * b))


def trial_areas(one: Standardised, combination: Combination) -> list[float]:
    """Computes a combination's AUROC in each trial of a task."""
    found = []
    for trial in one.trials:
        z = np.concatenate(trial)
        known = np.arange(len(z)) < len(trial.known)
        found.append(area(combination.on(one.evidence, z), known))
    return found
