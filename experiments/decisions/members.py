"""Computes the single scores ("members") of every training, once, from its outputs.

They are kept in ``FOLDER/members/TASK/TRAINING.npz``, for rules to combine.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from experiments.decisions import package

MEMBERS = (
    "softmax", "mls", "cbc", "energy", "mahalanobis", "rmds", "vim", "nearest", "knn", "nnguide",
    "nndr_features", "nndr_image", "template", "spatial_stage1", "spatial_stage2",
    "spatial_stage3", "spatial_stage4", "nndr_stage1", "nndr_stage2", "nndr_stage3", "nndr_stage4",
)  # fmt: skip
"""Scores that rules may combine; of the others, only the test of the main training is computed."""

_FOLDS = 5

Arrays = Mapping[str, np.ndarray]


def members_of(outputs: Callable[[], Arrays], kept: Path, *, main: bool, refit: bool) -> Arrays:
    """Returns the single scores of one training, from a file if they were computed before.

    Args:
      outputs: returns the training's outputs.
      kept: file of the scores.
      main: compute all scores, for the regret against the best one.
      refit: score every known training and validation chip by a fit without its fold too. The
        network has seen the training chips nevertheless.

    Returns:
      ``PART/score_NAME`` and ``PART/label_NAME`` of every part but the training, ``PART/labels``,
      ``PART/predicted``, and for ``refit`` the part ``refit``, in the order training, validation.
    """
    if kept.exists():
        with np.load(kept) as arrays:
            return dict(arrays)
    made = computed(outputs(), main=main, refit=refit)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(".unfinished.npz")
    np.savez(unfinished, **made)
    unfinished.rename(kept)
    return made


def computed(arrays: Arrays, *, main: bool, refit: bool) -> dict[str, np.ndarray]:
    """Computes the single scores of one training; see :func:`members_of`."""
    last, train = package.head_of(arrays), package.outputs(arrays, "train")
    assert train is not None
    names = ("validation", "test", "held_out", "box_off")
    parts = {name: one for name in names if (one := package.outputs(arrays, name)) is not None}
    every = package.member_names(train.more)
    few = [name for name in every if name in MEMBERS]
    made: dict[str, np.ndarray] = {"training": np.array(len(train.labels))}
    for part, found in package.scored(every if main else few, train, last, parts).items():
        made |= {f"{part}/{key}": values for key, values in found.items()}
    for part, found in parts.items():
        made |= {f"{part}/labels": found.labels, f"{part}/predicted": found.predicted}
        made |= {f"{part}/logits": found.logits}
    if refit and "validation" in parts:
        made |= _refitted(few, train, parts["validation"], last)
    return made


def _refitted(names, train, validation, last) -> dict[str, np.ndarray]:
    every = package.concatenated([train, validation])
    fold = np.zeros(len(every.labels), int)
    for c in np.unique(every.labels):  # folds have equal shares of every class
        own = np.flatnonzero(every.labels == c)
        fold[np.random.default_rng(c).permutation(own)] = np.arange(len(own)) % _FOLDS
    columns: dict[str, np.ndarray] = {}
    for number in range(_FOLDS):
        out = fold == number
        one = package.scored(names, every.select(~out), last, {"refit": every.select(out)})
        for key, values in one["refit"].items():
            whole = columns.setdefault(f"refit/{key}", np.full(len(fold), np.nan))
            whole[out] = values
    columns = {key: values for key, values in columns.items() if not np.isnan(values).any()}
    return columns | {"refit/labels": every.labels, "refit/predicted": every.predicted}
