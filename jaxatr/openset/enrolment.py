"""Enrols new classes by examples, without training the network.

A score that compares with stored examples recognises any class of which it has examples, even if
the network has no output for it. This is few-shot recognition by the nearest example (Vinyals et
al. 2016, "Matching networks") or, for Gaussian classes, by the nearest mean (Snell et al. 2017,
"Prototypical networks"), on the maps or features of a trained network.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.decision import Decision, Further
from jaxatr.openset.fit import Fitted
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.openset.unseen import with_validation
from jaxatr.typing import Float

TURNS = 20
"""Largest number of leave-one-out folds; more examples of a class are left out in groups."""


def enrolled_models(
    score: Score, models: dict[str, Any], outputs: Outputs, classes: int
) -> dict[str, Any]:
    """Returns the fitted models of a score and its members with examples added.

    Args:
      score: a score with ``takes_classes``.
      models: fitted models of the score and of its members, by name; they are not modified.
      outputs: outputs on the examples.
      classes: k, including the classes that the network has no output for.

    Raises:
      ValueError: the score cannot take classes, or an example is invalid.
    """
    if not score.takes_classes:
        raise ValueError(f"{score.name}: classes cannot be added to it without a training")
    found = dict(models)
    for one in _comparing(score).values():
        rows = np.asarray(one.comparing.rows(found[one.name], outputs))
        if len(bad := np.flatnonzero(~np.isfinite(rows).all(axis=1))):  # all scores could be NaN
            raise ValueError(
                f"{one.name}: {len(bad)} of {len(rows)} examples, the first is {bad[0]}, are not "
                "finite: the network overflows on them"
            )
        found[one.name] = one.comparing.add(found[one.name], rows, outputs.labels, classes)
    return found


def enrol(
    decision: Decision, outputs: Outputs, classes: int, *, validation: Outputs | None = None
) -> Decision:
    """Enrols new classes in a decision, and adds examples of known ones.

    Args:
      decision: a decision without enrolled classes.
      outputs: outputs on the examples. Labels from the network's number of classes on are new
        classes, each with at least one example.
      classes: number of new classes.
      validation: outputs on the known examples that the decision was calibrated on. Their scores
        are recomputed, because the examples can now be assigned to a new class. None leaves the
        calibration unchanged.

    Raises:
      ValueError: the score cannot take classes, or a new class has no example.
    """
    known = outputs.logits.shape[1]
    if missing := sorted({*range(known, known + classes)} - {*outputs.labels.tolist()}):
        raise ValueError(f"labels: no example of class {missing[0]}")
    wide, every = outputs.widened(classes), known + classes
    models = enrolled_models(decision.score, decision.models, wide, every)
    nothing = np.zeros(0, int)
    further = Further(known, classes, np.zeros(0), nothing, nothing)
    enrolled = replace(decision, models=models, further=further)
    comparing, ready = _comparing(decision.score), enrolled.ready()
    rows = {  # by gallery
        name: np.asarray(one.comparing.rows(decision.models[name], outputs))
        for name, one in comparing.items()
        if gallery.is_gallery(decision.models[name])
    }

    def without(out: np.ndarray) -> Decision:
        left = dict(ready.models)
        for name, one in comparing.items():
            if name in rows:
                own = left[name], rows[name], outputs.labels, out
                left[name] = gallery.without_examples(*own)
            else:
                rest = wide.select(np.delete(np.arange(len(wide.labels)), out))
                fitted = enrolled_models(one, {name: decision.models[name]}, rest, every)
                left[name] = gallery.ready(fitted[name])
        return replace(ready, models=left)

    scored, order = [], [nothing]
    for label in range(known, every):
        for out in _folds(np.flatnonzero(outputs.labels == label)):
            scored.append(without(out).score_of(outputs.select(out)))
            order.append(out)
    scores = np.concatenate([np.zeros(0), *(part for part, _ in scored)])
    nearest = np.concatenate([nothing, *(part for _, part in scored)])
    labels = outputs.labels[np.concatenate(order)]
    enrolled = replace(enrolled, further=Further(known, classes, scores, nearest, labels))
    if enrolled.calibration is None or validation is None:
        return enrolled
    scores, nearest = ready.score_of(validation)
    return replace(enrolled, calibration=with_validation(enrolled, scores, nearest))


def enrol_scores(fitted: Fitted, outputs: Outputs, classes: int) -> Fitted:
    """Adds examples to those of the scores that take classes, and leaves out the other scores.

    Args:
      fitted: the scores.
      outputs: outputs on the examples. Labels from the network's number of classes on are new
        classes.
      classes: number of new classes.

    Returns:
      The scores that take classes, for outputs that are :meth:`Outputs.widened` by the new ones.
    """
    models, every = dict(fitted.models), outputs.logits.shape[1] + classes
    taking = tuple(score for score in fitted.scores if score.takes_classes)
    # A member shared by several scores gets the examples once.
    chosen = {name: one for score in taking for name, one in _comparing(score).items()}
    wide = outputs.widened(classes)
    for name, one in chosen.items():
        models |= enrolled_models(one, {name: models[name]}, wide, every)
    return fitted._replace(scores=taking, models=models)


def compared_rows(decision: Decision, outputs: Outputs) -> Float[np.ndarray, "n d"]:
    """Computes the unit vectors by which a decision compares examples.

    For a score with members, these are the members' vectors, concatenated. For a score that does
    not compare with examples, they are the network's features.

    Args:
      decision: the decision.
      outputs: outputs on n examples, with ``"features"``.
    """
    parts = [
        np.asarray(one.comparing.rows(decision.models[one.name], outputs), np.float32)
        for one in _comparing(decision.score).values()
    ] or [np.asarray(outputs.more["features"], np.float32)]
    unit = [rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12) for rows in parts]
    return np.concatenate(unit, axis=1) / np.sqrt(len(unit))


def _comparing(score: Score) -> dict[str, Any]:
    """Lists the score and those of its members that compare with examples, by name."""
    found = {} if score.comparing is None else {score.name: score}
    for member in score.members:
        found |= _comparing(member)
    return found


def _folds(rows: np.ndarray) -> list[np.ndarray]:
    """Splits a class's examples into groups to leave out together; a single example gives none."""
    return np.array_split(rows, min(len(rows), TURNS)) if len(rows) > 1 else []
