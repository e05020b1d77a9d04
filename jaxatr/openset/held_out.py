"""Compares scores by classes that are known: each in turn stands in for an unknown one.

The classes are left out of what is computed *after* the network: their logits are dropped, the
scores are fitted without their training examples, and their validation examples are the unknown
ones. The network itself has seen them, so that all scores look better than they will be, and those
that profit most from what the network learned of a class may look better than they deserve. A
:class:`Trial` can come from elsewhere: from a network that was trained without the classes.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from jaxatr import metrics
from jaxatr.openset.fitted_scores import Fitted, fit_scores
from jaxatr.openset.outputs import UNKNOWN, Outputs
from jaxatr.openset.probability import standing_of
from jaxatr.openset.score import Head, Score
from jaxatr.typing import Bool, Float

MOST_TRIALS = 10
"""More classes than this are left out in groups, so that the time does not grow with them."""


class Trial(NamedTuple):
    """Outputs of a network, some of whose known classes stand in for unknown ones.

    Attributes:
      name: of what is left out.
      training: outputs on training examples of the classes that are left.
      validation: outputs on validation examples; those of the stand-ins are labelled unknown.
      head: the classifier's last layer, without the stand-ins.
    """

    name: str
    training: Outputs
    validation: Outputs
    head: Head


class Compared(NamedTuple):
    """How well a score tells known from stand-in classes.

    Attributes:
      areas: name of a trial to AUROC.
      standing: ``[m]``, the validation examples' scores in all trials, each by
        :func:`~jaxatr.openset.standing_of` among the known of its trial.
      known: ``[m]``, which of them are known there.
      refused: why it could not be computed; empty if it could.
    """

    areas: dict[str, float]
    standing: Float[np.ndarray, " m"]
    known: Bool[np.ndarray, " m"]
    refused: str = ""

    @property
    def mean(self) -> float:
        """The mean AUROC; not a number for one that could not be computed."""
        return float(np.mean(list(self.areas.values()))) if self.areas else float("nan")


def leave_classes_out(
    training: Outputs, validation: Outputs, head: Head, classes: tuple[str, ...]
) -> Iterator[Trial]:
    """Makes trials of one network's outputs, at most :data:`MOST_TRIALS`.

    Args:
      training: outputs on training examples of k known classes.
      validation: outputs on known examples that took no part in training.
      head: the closed-set classifier's last layer.
      classes: names of the k classes; with fewer than three there is no trial, as two have to be
        left.
    """
    k = len(classes)
    for group in np.array_split(np.arange(k), min(k, MOST_TRIALS)) if k > 2 else ():
        out = group.tolist()
        kept = [c for c in range(k) if c not in out]
        held = np.isin(validation.labels, out)
        if held.all() or not held.any():
            continue  # no validation example is known, or none is of a stand-in
        bias = None if head.bias is None else np.asarray(head.bias)[kept]
        yield Trial(
            ", ".join(classes[c] for c in out),
            training.select(~np.isin(training.labels, out)).without(out),
            validation.without(out),
            Head(np.asarray(head.kernel)[:, kept], bias),
        )


def compare(scores: Iterable[Score], trials: Iterable[Trial]) -> dict[str, Compared]:
    """Measures scores on trials, by name.

    A score that cannot be fitted or is not finite in one of them is refused; it is said why.
    """
    listed = {score.name: score for score in scores}
    found = {name: Compared({}, np.zeros(0), np.zeros(0, bool)) for name in listed}
    for trial in trials:
        able = [score for name, score in listed.items() if not found[name].refused]
        for name, values in _values(able, trial).items():
            found[name] = _measured(found[name], trial, values)
    return found


def best_of(compared: dict[str, Compared]) -> str | None:
    """Names the score of the highest mean AUROC, the first of equals; None where there is none."""
    able = {name: one.mean for name, one in compared.items() if one.areas}
    return max(able, key=lambda name: able[name]) if able else None


def _values(scores: list[Score], trial: Trial) -> dict[str, np.ndarray | str]:
    """Computes scores on a trial's validation examples; of one that cannot be, says why."""
    held_out = trial.validation.select(trial.validation.labels != UNKNOWN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a refusal, which is recorded, and of infinities
        fitted = fit_scores(scores, trial.training, trial.head, validation=held_out, leave_out=True)
        try:
            found = fitted.on(trial.validation)  # together: some are made of the same members
        except ValueError:
            found = {one.name: _alone(fitted, one, trial) for one in fitted.scores}
    return {**found, **fitted.refused}


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
