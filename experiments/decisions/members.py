"""Computes the single scores ("members") of every recorded training, once, from its outputs.

They are kept beside the outputs, in ``FOLDER/members/TASK/TRAINING.npz``, for rules to combine.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from experiments.decisions import package

FOLDS = 5
"""Folds of the known chips for scores whose fit leaves a chip out."""


def members_of(outputs: Path, kept: Path, *, folds: bool) -> dict[str, np.ndarray]:
    """Returns the single scores of one training, from a file if they were computed before.

    Args:
      outputs: file of the training's outputs.
      kept: file of the scores.
      folds: whether every known training and validation chip is scored by a fit without its fold
        too. The network has seen the training chips nevertheless.

    Returns:
      ``PART/score_NAME`` and ``PART/label_NAME`` of every part but the training, ``PART/labels``,
      ``PART/predicted``, and for ``folds`` the part ``refit``, in the order training, validation.
    """
    if kept.exists() and kept.stat().st_mtime > outputs.stat().st_mtime:
        with np.load(kept) as arrays:
            return dict(arrays)
    with np.load(outputs) as file:
        arrays = dict(file)
    made = computed(arrays, folds=folds)
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.savez(kept, **made)
    return made


def computed(arrays: Mapping[str, np.ndarray], *, folds: bool) -> dict[str, np.ndarray]:
    """Computes the single scores of one training; see :func:`members_of`."""
    last = package.head_of(arrays)
    train = package.outputs(arrays, "train")
    assert train is not None
    names = [name for name in ("validation", "test", "held_out", "box_off")]
    parts = {name: one for name in names if (one := package.outputs(arrays, name)) is not None}
    wanted = package.member_names(train.more)
    made: dict[str, np.ndarray] = {}
    for part, found in package.scored(wanted, train, last, parts).items():
        made |= {f"{part}/{key}": values for key, values in found.items()}
    for part, found in parts.items():
        made |= {f"{part}/labels": found.labels, f"{part}/predicted": found.predicted}
    if folds and "validation" in parts:
        made |= _refitted(wanted, train, parts["validation"], last)
    return made


def _refitted(wanted, train, validation, last) -> dict[str, np.ndarray]:
    every = package.concatenated([train, validation])
    fold = np.zeros(len(every.labels), int)
    for c in np.unique(every.labels):  # folds have equal shares of every class
        own = np.flatnonzero(every.labels == c)
        fold[np.random.default_rng(c).permutation(own)] = np.arange(len(own)) % FOLDS
    columns: dict[str, np.ndarray] = {}
    for number in range(FOLDS):
        out = fold == number
        one = package.scored(wanted, every.select(~out), last, {"refit": every.select(out)})
        for key, values in one["refit"].items():
            columns.setdefault(f"refit/{key}", np.full(len(fold), np.nan, values.dtype if values.dtype.kind == "f" else float))[out] = values
    columns = {key: values for key, values in columns.items() if not np.isnan(values).any()}
    return columns | {"refit/labels": every.labels, "refit/predicted": every.predicted}
