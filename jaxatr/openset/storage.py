"""Conversion of decisions to and from arrays, which can be stored without pickling."""

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxatr.openset.calibration import Calibration, Sigmoid
from jaxatr.openset.decision import Decision, Further
from jaxatr.openset.score import Score


def to_arrays(decision: Decision) -> dict[str, np.ndarray]:
    """Converts a decision to named arrays.

    Raises:
      ValueError: a score's fitted model is not a named tuple of arrays.
    """
    found: dict[str, Any] = {"score": np.array(decision.score.name)}
    for name, model in decision.models.items():
        fields = getattr(model, "_fields", None)
        if fields is None:
            raise ValueError(
                f"{name}: its fit returned a {type(model).__name__}, wanted a named tuple"
            )
        found[f"model.{name}"] = np.array(fields)
        for field, value in zip(fields, model, strict=True):
            if value is not None:
                found[f"model.{name}.{field}"] = _array(f"{name}.{field}", value)
    found["gallery"] = np.bool_(decision.gallery)
    if decision.threshold is not None:
        found["threshold"] = np.float64(decision.threshold)
    if (one := decision.calibration) is not None:
        found |= {
            "calibration.scores": np.asarray(one.scores),
            "calibration.nearest": np.asarray(one.nearest),
            "calibration.temperature": np.float64(one.temperature),
            "calibration.tpr": np.float64(one.tpr),
            "calibration.per_class": np.bool_(one.per_class),
            "calibration.sigmoid": np.array(one.sigmoid or (), np.float64),
        }
        if one.unseen is not None:
            found["calibration.unseen"] = np.int64(one.unseen)
        if one.folds:
            found["calibration.folds"] = np.int64(one.folds)
    if decision.further is not None:
        further = decision.further._asdict()
        found |= {f"further.{name}": np.asarray(value) for name, value in further.items()}
    return {name: np.asarray(value) for name, value in found.items()}


def from_arrays(score: Score, arrays: Mapping[str, np.ndarray]) -> Decision:
    """Restores a decision from the arrays of :func:`to_arrays`.

    Raises:
      ValueError: the arrays belong to another score, or to another version of its model.
    """
    if "score" not in arrays or str(arrays["score"]) != score.name:
        raise ValueError(f"got a model fitted for {arrays.get('score')}, wanted {score.name}")
    forms = (score, *score.former)
    score = next((one for one in forms if _models_of(one) <= arrays.keys()), score)
    calibration = None
    if "calibration.scores" in arrays:
        later = ("unseen", "folds")  # absent where they say nothing, or in earlier versions
        own = {n: arrays[f"calibration.{n}"] for n in Calibration._fields if n not in later}
        unseen = arrays.get("calibration.unseen")  # absent in runs of earlier versions
        sigmoid = Sigmoid(*map(float, own["sigmoid"])) if own["sigmoid"].size else None
        calibration = Calibration(
            own["scores"],
            own["nearest"],
            float(own["temperature"]),
            float(own["tpr"]),
            bool(own["per_class"]),
            sigmoid,
            None if unseen is None else int(unseen),
            int(arrays.get("calibration.folds", 0)),
        )
    threshold = float(arrays["threshold"]) if "threshold" in arrays else None
    gallery = bool(arrays["gallery"])
    further = None
    if "further.scores" in arrays:
        first, count, *rows = (arrays[f"further.{name}"] for name in Further._fields)
        further = Further(int(first), int(count), *rows)
    return Decision(score, _models(score, arrays), gallery, calibration, threshold, further)


def _models_of(score: Score) -> set[str]:
    """Returns the names of the arrays that name a score's models."""
    own = {f"model.{score.name}"} if score.fit is not None else set()
    return own.union(*map(_models_of, score.members))


def _models(score: Score, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Restores the models of a score and of its members, by name.

    A field that was added to a model after the run was saved takes its default, which gives the
    same scores as before.
    """
    found: dict[str, Any] = {}
    for member in score.members:
        found |= _models(member, arrays)
    if f"model.{score.name}" in arrays:
        fields = tuple(map(str, arrays[f"model.{score.name}"]))
        kind: Any = score.model or namedtuple("Model", fields)
        unset = set(kind._fields) - set(fields)  # added since the run was saved
        if not set(fields) <= set(kind._fields) or not unset <= set(kind._field_defaults):
            raise ValueError(f"{score.name}: got a model of {fields}, wanted one of {kind._fields}")
        kept = {name: arrays.get(f"model.{score.name}.{name}") for name in fields}
        found[score.name] = kind(**kept)
    return found


def _array(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise ValueError(f"{name}: got a {type(value).__name__}, wanted an array of numbers")
    return array
