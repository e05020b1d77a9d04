"""Classes that are added to what a score compares with, without a training of the network.

A score that compares with training examples knows a class by its examples. So examples of a further
class, which the network has no output for, make it a known one. This is few-shot recognition by the
nearest example (Vinyals et al. 2016, "Matching networks"; for Gaussian classes by the nearest mean,
Snell et al. 2017, "Prototypical networks"), on the maps or features of a network that is finished.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxatr.openset.decision import Decision, Further
from jaxatr.openset.fitted_scores import Fitted
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Float

TURNS = 20
"""Turns in which the examples of a class are compared with the others: more than so many examples
are left out in groups."""


def enrolled_models(
    score: Score, models: dict[str, Any], outputs: Outputs, classes: int
) -> dict[str, Any]:
    """Adds examples to what a score and its members compare with.

    Args:
      score: one that takes classes.
      models: name of it, and of its members, to fitted models, which stay as they are.
      outputs: on the examples.
      classes: k, with those that the network does not have.

    Raises:
      ValueError: the score takes no classes, or an example does not fit.
    """
    if not score.takes_classes:
        raise ValueError(f"{score.name}: classes cannot be added to it without a training")
    found = dict(models)
    for one in _comparing(score).values():
        rows = np.asarray(one.comparing.rows(found[one.name], outputs))
        found[one.name] = one.comparing.add(found[one.name], rows, outputs.labels, classes)
    return found


def enrol(
    decision: Decision, outputs: Outputs, classes: int, *, validation: Outputs | None = None
) -> Decision:
    """Adds classes to a decision, and examples of known ones.

    Args:
      decision: without any.
      outputs: on the examples. A label from the network's number of classes on is of a further
        class; of each there is one example at least.
      classes: how many further ones there are.
      validation: outputs on the known examples that the decision was calibrated to. With further
        classes to be taken for, their scores are others; without them the calibration stays.

    Raises:
      ValueError: the score takes no classes, or a further class has no example.
    """
    known = outputs.logits.shape[1]
    if missing := sorted({*range(known, known + classes)} - {*outputs.labels.tolist()}):
        raise ValueError(f"labels: no example of class {missing[0]}")
    wide, every = outputs.widened(classes), known + classes

    def of(chosen: np.ndarray) -> Decision:
        models = enrolled_models(decision.score, decision.models, wide.select(chosen), every)
        nothing = np.zeros(0, int)
        further = Further(known, classes, np.zeros(0), nothing, nothing)
        return replace(decision, models=models, further=further)

    everything = np.ones(len(outputs.labels), bool)
    made, scored, order = of(everything), [], [np.zeros(0, int)]
    for label in range(known, every):
        for out in _turns(np.flatnonzero(outputs.labels == label)):
            left = everything.copy()
            left[out] = False
            scored.append(of(left).score_of(outputs.select(out)))
            order.append(out)
    scores = np.concatenate([np.zeros(0), *(found for found, _ in scored)])
    nearest = np.concatenate([np.zeros(0, int), *(found for _, found in scored)])
    labels = outputs.labels[np.concatenate(order)]
    made = replace(made, further=Further(known, classes, scores, nearest, labels))
    if made.calibration is None or validation is None:
        return made
    scores, nearest = made.score_of(validation)
    calibration = made.calibration._replace(scores=scores, nearest=nearest)
    return replace(made, calibration=calibration)


def enrol_scores(fitted: Fitted, outputs: Outputs, classes: int) -> Fitted:
    """Adds examples to those of several scores that take classes; the others stay.

    Args:
      fitted: the scores.
      outputs: on the examples, as of :func:`enrol`.
      classes: how many further ones there are.
    """
    models, every = dict(fitted.models), outputs.logits.shape[1] + classes
    taking = (score for score in fitted.scores if score.takes_classes)
    # A member that several scores are made of gets the examples once.
    chosen = {name: one for score in taking for name, one in _comparing(score).items()}
    wide = outputs.widened(classes)
    for name, one in chosen.items():
        models |= enrolled_models(one, {name: models[name]}, wide, every)
    return fitted._replace(models=models)


def compared_rows(decision: Decision, outputs: Outputs) -> Float[np.ndarray, "n d"]:
    """Makes the vectors of length 1 by which a decision compares examples.

    Of a score that is made of others it is theirs, side by side. Of one that compares with no
    examples it is the network's features.

    Args:
      decision: by a score.
      outputs: on n examples, with ``"features"``.
    """
    parts = [
        np.asarray(one.comparing.rows(decision.models[one.name], outputs), np.float32)
        for one in _comparing(decision.score).values()
    ] or [np.asarray(outputs.more["features"], np.float32)]
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in parts]
    return np.concatenate(unit, axis=1) / np.sqrt(len(unit))


def _comparing(score: Score) -> dict[str, Any]:
    """Finds what compares with examples, by name: the score, or those of its members."""
    found = {} if score.comparing is None else {score.name: score}
    for member in score.members:
        found |= _comparing(member)
    return found


def _turns(rows: np.ndarray) -> list[np.ndarray]:
    """Parts the examples of a class into those that are left out together; none of one alone."""
    return np.array_split(rows, min(len(rows), TURNS)) if len(rows) > 1 else []
