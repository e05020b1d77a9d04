"""Computes the single scores ("members") of every training, once, from its outputs.

They are kept in ``FOLDER/members/TASK/TRAINING.npz``, for rules to combine.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from experiments.decisions import scores

_FOLDS = 5
_PARTS = ("validation", "test", "held_out", "box_off", "query")

Arrays = Mapping[str, np.ndarray]


def members_of(outputs: Callable[[], Arrays], kept: Path, *, refit: bool) -> Arrays:
    """Returns the single scores of one training, from a file if they were computed before.

    Args:
      outputs: returns the training's outputs.
      kept: file of the scores.
      refit: score every known training and validation chip by a fit without its fold too. The
        network has seen the training chips nevertheless.

    Returns:
      ``PART/score_NAME`` and ``PART/label_NAME`` of every part but the training, ``PART/labels``,
      ``PART/predicted``, and for ``refit`` the part ``refit``, in the order training, validation.
    """
    if kept.exists():
        with np.load(kept) as arrays:
            return dict(arrays)
    made = computed(outputs(), refit=refit)
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(".unfinished.npz")
    np.savez(unfinished, allow_pickle=False, **made)
    unfinished.rename(kept)
    return made


def computed(arrays: Arrays, *, refit: bool) -> dict[str, np.ndarray]:
    """Computes the single scores of one training; see :func:`members_of`."""
    train = part_of(arrays, "train")
    kernel = arrays["head_kernel"].astype(np.float64)
    head = kernel, np.asarray(arrays.get("head_bias", np.zeros(kernel.shape[1])), np.float64)
    made: dict[str, np.ndarray] = {"training": np.array(len(train["labels"]))}
    for name in _PARTS:
        if own := part_of(arrays, name):
            found = scores.computed(train, head, own)
            made |= {f"{name}/{key}": values for key, values in found.items()}
            made |= {f"{name}/labels": own["labels"], f"{name}/logits": own["logits"]}
            made[f"{name}/predicted"] = own["logits"].argmax(axis=1)
    for name, area in scores.image_areas(train["image"], train["labels"].astype(int)).items():
        made[f"area_{name}"] = np.array(area)
    if refit and "validation_labels" in arrays:
        made |= _refitted(train, part_of(arrays, "validation"), head)
    return made


def part_of(arrays: Arrays, part: str) -> dict[str, np.ndarray]:
    """Returns the outputs on a part by their names; empty if it was not recorded."""
    return {k.removeprefix(f"{part}_"): v for k, v in arrays.items() if k.startswith(f"{part}_")}


def _refitted(train: Arrays, validation: Arrays, head) -> dict[str, np.ndarray]:
    every = {name: np.concatenate([train[name], validation[name]]) for name in train}
    fold = folds_of(every["labels"], _FOLDS)
    columns: dict[str, np.ndarray] = {}
    for number in range(_FOLDS):
        out = fold == number
        rest, own = ({k: v[side] for k, v in every.items()} for side in (~out, out))
        for key, values in scores.computed(rest, head, own).items():
            whole = columns.setdefault(f"refit/{key}", np.zeros(len(fold), values.dtype))
            whole[out] = values
    predicted = every["logits"].argmax(axis=1)
    return columns | {"refit/labels": every["labels"], "refit/predicted": predicted}


def folds_of(labels: np.ndarray, count: int) -> np.ndarray:
    """Divides examples into folds with equal shares of every class, always the same."""
    fold = np.zeros(len(labels), int)
    for c in np.unique(labels):
        own = np.flatnonzero(labels == c)
        fold[np.random.default_rng(c).permutation(own)] = np.arange(len(own)) % count
    return fold
