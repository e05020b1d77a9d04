"""Leaks: how well the class can be predicted from size, mean, spread or border alone."""

import math
from types import ModuleType
from typing import NamedTuple

import numpy as np

from jaxatr.data.doctor.facts import Facts
from jaxatr.extras import extra
from jaxatr.typing import Float, Int

_FOLDS = 5
_MOST = 300  # examples per class, enough for these four estimates
_TREES = 20


class Leak(NamedTuple):
    """How well one kind of fact predicts the class.

    Attributes:
      fact: ``"size"``, ``"mean"``, ``"spread"`` or ``"border"``.
      within: balanced accuracy, cross-validated within the training split.
      across: balanced accuracy on the test split after learning on the training split; None
        without a test split that has all the classes.
      chance: accuracy of guessing.
      measured: number of examples behind ``within`` and ``across``.
    """

    fact: str
    within: float
    across: float | None
    chance: float
    measured: tuple[int, int]

    @property
    def share(self) -> float:
        """Position between guessing, 0, and knowing, 1, on the test split if there is one."""
        if self.across is None:
            return self.share_within
        return self._share(self.across, self.measured[1])

    @property
    def share_within(self) -> float:
        """The same within the training split, where neighbouring frames of a series may help."""
        return self._share(self.within, self.measured[0])

    def _share(self, accuracy: float, count: int) -> float:
        """Returns 0 for accuracies within three standard errors of guessing."""
        luck = 3 * math.sqrt(self.chance * (1 - self.chance) / max(count, 1))
        better = accuracy - self.chance
        return better / (1 - self.chance) if better > luck else 0.0


def leaks(facts: Facts, train: int, test: int | None) -> list[Leak]:
    """Predicts the class from each kind of fact alone with a small random forest.

    Args:
      facts: facts about the images.
      train: number of the split to learn on.
      test: number of the split to measure on as well, or None.
    """
    # Trees take differences below 1e-7 for none, whatever the units.
    unit = float(np.median(facts.spread)) or float(np.abs(facts.border).max()) or 1.0
    values = {
        "size": facts.size.astype(np.float64),
        "mean": facts.mean[:, None] / unit,
        "spread": facts.spread[:, None] / unit,
        "border": facts.border / unit,
    }
    rows = _balanced(facts.label, np.flatnonzero(facts.part == train))
    classes, counts = np.unique(facts.label[rows], return_counts=True)
    classes = classes[counts >= _FOLDS]
    rows = rows[np.isin(facts.label[rows], classes)]
    if len(classes) < 2:
        return []
    other = np.empty(0, np.int64)
    if test is not None:
        tested = np.flatnonzero((facts.part == test) & np.isin(facts.label, classes))
        other = _balanced(facts.label, tested)
    measured = []
    for fact, columns in values.items():
        within = _within(columns[rows], facts.label[rows])
        across = None
        if len(np.unique(facts.label[other])) == len(classes):
            forest = _forest().fit(columns[rows], facts.label[rows])
            across = _accuracy(facts.label[other], np.asarray(forest.predict(columns[other])))
        measured.append(Leak(fact, within, across, 1 / len(classes), (len(rows), len(other))))
    return measured


def sklearn(name: str) -> ModuleType:
    """Imports a module of scikit-learn, which belongs to an extra."""
    return extra(f"sklearn.{name}", "report", "checking a data set")


def _forest():
    return sklearn("ensemble").RandomForestClassifier(
        _TREES, min_samples_leaf=3, class_weight="balanced", random_state=0
    )


def _within(values: Float[np.ndarray, "n f"], labels: Int[np.ndarray, " n"]) -> float:
    selection = sklearn("model_selection")
    folds = selection.StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    return _accuracy(
        labels, np.asarray(selection.cross_val_predict(_forest(), values, labels, cv=folds))
    )


def _accuracy(labels: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"]) -> float:
    return float(sklearn("metrics").balanced_accuracy_score(labels, predicted))


def _balanced(labels: Int[np.ndarray, " n"], rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " d"]:
    """Returns at most ``_MOST`` rows of each class, drawn with a fixed seed."""
    shuffled = np.random.default_rng(0).permutation(rows)
    taken: dict[int, int] = {}
    kept = []
    for row in shuffled:
        label = int(labels[row])
        taken[label] = taken.get(label, 0) + 1
        if taken[label] <= _MOST:
            kept.append(row)
    return np.sort(np.array(kept, np.int64))
