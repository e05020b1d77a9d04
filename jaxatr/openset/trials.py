"""Compares scores on known classes, each in turn standing in for an unknown one.

The classes are left out *after* the training of the network: their logits are dropped, the scores
are fitted without their training examples, and their validation examples count as unknown. Because
the network was trained on them, all scores look better than they will on truly unknown classes, and
scores that rely on the classes that the network has learned may be favoured. A :class:`Trial` can
also come from a network that was trained without the classes.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from jaxatr import metrics
from jaxatr.openset.calibration import standing_of
from jaxatr.openset.fit import Fitted, fit_scores
from jaxatr.openset.head import Head
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Bool, Float, Int

MOST_TRIALS = 10
"""Largest number of trials of one network; more classes are left out in groups."""

_FEWEST_CLASSES = 3


class Trial(NamedTuple):
    """A network's outputs with some known classes standing in for unknown ones.

    Attributes:
      name: names of the classes left out.
      training: outputs on training examples of the remaining classes.
      validation: outputs on validation examples; those of the left-out classes are labelled
        unknown.
      head: the classifier's last layer, without the left-out classes.
    """

    name: str
    training: Outputs
    validation: Outputs
    head: Head


class Compared(NamedTuple):
    """How well a score separates known classes from left-out ones.

    Attributes:
      areas: AUROC by name of the trial.
      standing: ``[m]``, the validation examples' scores in all trials, each standardised by the
        known examples of its trial (:func:`~jaxatr.openset.standing_of`).
      known: ``[m]``, whether each is known in its trial.
      refused: the reason why the score could not be computed; empty if it could.
    """

    areas: dict[str, float]
    standing: Float[np.ndarray, " m"]
    known: Bool[np.ndarray, " m"]
    refused: str = ""

    @property
    def mean(self) -> float:
        """The mean AUROC; NaN for a score that could not be computed."""
        return float(np.mean(list(self.areas.values()))) if self.areas else float("nan")


def left_out(
    labels: Int[np.ndarray, " n"], classes: int, *, most: int = MOST_TRIALS
) -> list[list[int]]:
    """Returns groups of k classes to leave out, which have some of the examples, but not all.

    Args:
      labels: ``[n]``, classes of the validation examples.
      classes: k. With fewer than three there is no group, because two classes have to remain.
      most: largest number of groups.

    >>> left_out(np.array([0, 1, 1, 2]), 4, most=2)
    [[0, 1], [2, 3]]
    """
    if classes < _FEWEST_CLASSES:
        return []
    groups = np.array_split(np.arange(classes), min(classes, most))
    held = [np.isin(labels, group) for group in groups]
    return [g.tolist() for g, own in zip(groups, held, strict=True) if own.any() and not own.all()]


def leave_classes_out(
    training: Outputs,
    validation: Outputs,
    head: Head,
    classes: tuple[str, ...],
    *,
    most: int = MOST_TRIALS,
) -> Iterator[Trial]:
    """Yields trials from one network's outputs.

    Args:
      training: outputs on training examples of k known classes.
      validation: outputs on known examples that took no part in training.
      head: the closed-set classifier's last layer.
      classes: names of the k classes.
      most: largest number of trials.
    """
    k = len(classes)
    for out in left_out(validation.labels, k, most=most):
        kept = [c for c in range(k) if c not in out]
        yield Trial(
            ", ".join(classes[c] for c in out),
            training.select(~np.isin(training.labels, out)).without(out),
            validation.without(out),
            head.select(kept),
        )


def compare(scores: Iterable[Score], trials: Iterable[Trial]) -> dict[str, Compared]:
    """Measures scores on trials, by name.

    A score that cannot be fitted, or is not finite, in one of the trials is refused, with the
    reason.
    """
    listed = {score.name: score for score in scores}
    compared = {name: Compared({}, np.zeros(0), np.zeros(0, bool)) for name in listed}
    for trial in trials:
        able = [score for name, score in listed.items() if not compared[name].refused]
        for name, values in _values(able, trial).items():
            compared[name] = _measured(compared[name], trial, values)
    return compared


def best_of(compared: dict[str, Compared]) -> str | None:
    """Returns the name of the score with the highest mean AUROC, or None if there is none.

    The first of several equal scores wins.
    """
    able = {name: one.mean for name, one in compared.items() if one.areas}
    return max(able, key=lambda name: able[name]) if able else None


def _values(scores: list[Score], trial: Trial) -> dict[str, np.ndarray | str]:
    """Computes scores on a trial's validation examples, or the reason why a score failed."""
    held_out = trial.validation.select(trial.validation.labels != UNKNOWN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # refusals are recorded, infinities are handled later
        fitted = fit_scores(scores, trial.training, trial.head, validation=held_out, leave_out=True)
        try:
            values = fitted.on(trial.validation)  # all at once, because scores share members
        except ValueError:
            values = {one.name: _alone(fitted, one, trial) for one in fitted.scores}
    return {**values, **fitted.refused}


def _alone(fitted: Fitted, score: Score, trial: Trial) -> np.ndarray | str:
    try:
        return fitted._replace(scores=(score,)).on(trial.validation)[score.name]
    except ValueError as error:
        return str(error)


def _measured(before: Compared, trial: Trial, values: np.ndarray | str) -> Compared:
    if not isinstance(values, str) and not np.isfinite(values).all():
        values = f"{np.sum(~np.isfinite(values))} values are not finite"
    if isinstance(values, str):
        return Compared({}, np.zeros(0), np.zeros(0, bool), f"without {trial.name}: {values}")
    known, scores = trial.validation.labels != UNKNOWN, np.asarray(values, np.float64)
    return Compared(
        before.areas | {trial.name: metrics.auroc(scores[known], scores[~known])},
        np.concatenate([before.standing, standing_of(scores, scores[known])]),
        np.concatenate([before.known, known]),
    )
