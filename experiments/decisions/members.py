"""Computes the single scores ("members") of every training, once, from its outputs.

They are kept in ``FOLDER/members/TASK/TRAINING.npz``, for rules to combine.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from experiments.decisions import scores
from jaxatr import metrics

_FOLDS = 5
_THIRDS, _TRAINED, _QUERIES = 3, 400, 100
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


def left_out_of(outputs: Callable[[], Arrays], kept: Path) -> dict[str, float]:
    """Returns the AUROC of single scores on classes left out after the training.

    They are what ``score=auto`` chooses by: the network has seen the classes. At most
    :data:`_TRAINED` training and :data:`_QUERIES` validation chips are used, and the classes are
    left out in thirds.

    Returns:
      Mean AUROC by score, from a file if it was computed before; empty for two classes.
    """
    if not kept.exists():
        np.savez(kept, allow_pickle=False, **_left_out(outputs()))
    with np.load(kept) as arrays:
        return {name: float(value) for name, value in arrays.items()}


def _left_out(arrays: Arrays) -> dict[str, float]:
    kernel = arrays["head_kernel"].astype(np.float64)
    bias, classes = np.asarray(arrays.get("head_bias", np.zeros(kernel.shape[1]))), kernel.shape[1]
    train, validation = (
        _sampled(part_of(arrays, name), most)
        for name, most in (("train", _TRAINED), ("validation", _QUERIES))
    )
    areas: dict[str, list[float]] = {}
    for group in np.array_split(np.arange(classes), _THIRDS) if classes >= _THIRDS else ():
        kept = np.delete(np.arange(classes), group)
        held = np.isin(validation["labels"], group)
        if held.all() or not held.any():
            continue
        own = ~np.isin(train["labels"], group)
        rest = _of_classes({name: values[own] for name, values in train.items()}, kept)
        rest["labels"] = np.searchsorted(kept, rest["labels"])
        head = kernel[:, kept], bias[kept].astype(np.float64)
        found = scores.computed(rest, head, _of_classes(validation, kept))
        for name in (one for one in found if one.startswith("score_")):
            one = metrics.auroc(found[name][~held], found[name][held])
            areas.setdefault(name.removeprefix("score_"), []).append(one)
    return {name: float(np.mean(values)) for name, values in areas.items()}


def _sampled(part: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    chosen = np.random.default_rng(0).permutation(len(part["labels"]))[:most]
    return {name: values[chosen] for name, values in part.items()}


def _of_classes(part: Arrays, kept: np.ndarray) -> dict[str, np.ndarray]:
    """Keeps the logits of some classes."""
    return {n: v[:, kept] if n in ("logits", "open_logits") else v for n, v in part.items()}


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
