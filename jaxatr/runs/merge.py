"""Merges a new evaluation with the recorded one of the same network and examples."""

import copy
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import files, forms
from jaxatr.forms import ObjectForm
from jaxatr.recognition import other_data
from jaxatr.training import EVALUATION, SCORES

_SAME = (
    *("task", "dataset", "set.fingerprint", "split", "known", "unknown", "gamma", "tpr"),
    "explanation.convention",
)
_OF_EXAMPLES = ("test_", "validation_", "box_off_", "sheet_", other_data.PART)
_OF_SCORES = ("_score_", "_predicted_")
_OF_DECISION = "decided_"
_ROUNDING = 1e-3  # programs compiled from the same function differ in the last digits


class Evaluated(NamedTuple):
    """The content of an evaluation.

    Attributes:
      measured: the figures, as in ``evaluation.json``.
      arrays: the arrays that they are computed from, as in ``scores.npz``.
    """

    measured: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Merged(NamedTuple):
    """A new evaluation merged with the recorded one.

    Attributes:
      evaluated: figures and arrays of both.
      notes: lines that name the recorded figures that are replaced, and why.
    """

    evaluated: Evaluated
    notes: list[str]


def merged(folder: Path, now: Evaluated, kept: Iterable[str], form: ObjectForm) -> Merged:
    """Completes a new evaluation with recorded figures that it lacks.

    Recorded figures are kept if both evaluations have the same checkpoint and configuration, and if
    the arrays of examples that both have are equal up to rounding. Each group of images of other
    data (``outside``) is kept or dropped separately, by its own arrays. New figures replace
    recorded ones, and the decision is always the new one.

    Args:
      folder: the run's folder.
      now: the new evaluation.
      kept: patterns of the figures to keep (:attr:`jaxatr.training.Task.kept`).
      form: that of the recorded figures (:attr:`jaxatr.training.Task.evaluation_form`).
    """
    patterns = tuple(name.split(".") for name in kept)
    if not patterns or not (folder / EVALUATION).is_file():
        return Merged(now, [])
    try:
        before = files.read_fields(folder / EVALUATION)
        forms.check(before, form, folder / EVALUATION)
        with np.load(folder / SCORES) as file:
            arrays = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return Merged(now, [f"the earlier evaluation is replaced: it cannot be read ({error})"])
    measured = copy.deepcopy(now.measured)
    missing = _missing(before, measured, patterns)
    if not missing:
        return Merged(now, [])
    if reason := _difference(before, now.measured):
        return Merged(now, [_note(missing, reason)])
    notes = []
    if changed := _changed(arrays, now.arrays):
        groups = sorted(before.get("outside", {}), key=len, reverse=True)
        for name in changed:
            owners = (each for each in groups if name.startswith(f"{other_data.PART}{each}_"))
            if (group := next(owners, None)) is None:
                reason = f"{name} has changed: other examples, or other preprocessing"
                return Merged(now, [_note(missing, reason)])
            if gone := [path for path in missing if group in path]:
                notes.append(_note(gone, f"{group} has other images now"))
                missing = [path for path in missing if path not in gone]
            prefix = f"{other_data.PART}{group}_"
            arrays = {n: array for n, array in arrays.items() if not n.startswith(prefix)}
    for path in missing:
        place = measured
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if path[-1] not in place or place[path[-1]] is None:
            place[path[-1]] = _at(before, path)
    if _decision(before) != _decision(measured):
        for name in measured.get("outside", {}).keys() - now.measured.get("outside", {}).keys():
            measured["outside"][name].pop("unknown_accepted", None)  # of the earlier decision
    arrays = {n: array for n, array in arrays.items() if not n.startswith(_OF_DECISION)}
    return Merged(Evaluated(measured, arrays | now.arrays), notes)


def _missing(
    before: Mapping[str, Any], now: Mapping[str, Any], patterns: Iterable[list[str]]
) -> list[tuple[str, ...]]:
    """Lists the paths of recorded figures that the new evaluation lacks, outer ones first."""
    return [
        path
        for pattern in patterns
        for path in _paths(before, pattern)
        if _at(now, path) is None and _at(before, path) is not None
    ]


def _paths(tree: Any, pattern: list[str]) -> list[tuple[str, ...]]:
    if not pattern:
        return [()]
    first, *rest = pattern
    if not isinstance(tree, Mapping):
        return []
    names = list(tree) if first == "*" else [name for name in (first,) if name in tree]
    return [(name, *path) for name in names for path in _paths(tree[name], rest)]


def _at(tree: Any, path: Iterable[str]) -> Any:
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns the reason why two evaluations cannot be merged, or an empty string."""
    now = json.loads(json.dumps(now))
    earlier, step = (_at(one, ("checkpoint", "step")) for one in (before, now))
    if earlier != step:
        return f"it was measured at step {earlier}, the new one at step {step}"
    for name in _SAME:
        if _at(before, name.split(".")) != _at(now, name.split(".")):
            return f"its {name} differs from that of the new evaluation"
    return ""


def _changed(before: Mapping[str, np.ndarray], now: Mapping[str, np.ndarray]) -> list[str]:
    """Lists the arrays of examples that are in both evaluations but differ."""
    return [
        name
        for name in sorted(before.keys() & now.keys())
        if name.startswith(_OF_EXAMPLES) and not any(part in name for part in _OF_SCORES)
        if not _equal(before[name], now[name])
    ]


def _equal(before: np.ndarray, now: np.ndarray) -> bool:
    if before.shape != now.shape:
        return False
    if now.dtype.kind != "f":
        return np.array_equal(before, now)
    finite = np.abs(now[np.isfinite(now)])
    scale = float(finite.max()) if finite.size else 0.0
    return np.allclose(before, now, rtol=_ROUNDING, atol=_ROUNDING * scale, equal_nan=True)


def _decision(measured: Mapping[str, Any]) -> tuple[Any, Any]:
    return measured.get("decides"), _at(measured, ("decision", "thresholds"))


def _note(paths: Iterable[tuple[str, ...]], reason: str) -> str:
    names = sorted({path[-1] for path in paths})
    return f"the earlier evaluation of {', '.join(names)} is replaced: {reason}"
