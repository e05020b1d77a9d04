"""Folds of a cross-validation: equal shares of every class, and groups that stay together."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from jaxatr.data.dataset import Split
from jaxatr.resolve import nearest
from jaxatr.typing import Int

FOLDER = "folder"
"""Name that stands for the folder of an example's file, in place of a column."""

_FOLD = re.compile(r"(\d+)/(\d+)")


class Fold(NamedTuple):
    """One of the folds of a cross-validation.

    Attributes:
      number: its number, from 1.
      count: number of folds.
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Fold":
        """Parses ``"2/5"``, the second of five folds.

        Raises:
          ValueError: it is not of this form, or there is no such fold.
        """
        found = _FOLD.fullmatch(text)
        fold = cls(*map(int, found.groups())) if found else cls(0, 0)
        if fold.count < 2 or not 1 <= fold.number <= fold.count:
            raise ValueError(
                f"data.fold: got {text!r}, wanted a fold and the number of folds, such as 2/5"
            )
        return fold


def stratified_folds(
    labels: Int[np.ndarray, " n"],
    count: int,
    seed: int,
    *,
    groups: np.ndarray | None = None,
) -> Int[np.ndarray, " n"]:
    """Divides examples into folds with about equal shares of every class.

    Groups are taken in the order of their size, those of equal size in a random order. Each joins
    the fold that has the fewest examples of the group's classes so far, relative to the size of
    the classes.

    Args:
      labels: ``[n]``, class of each example.
      count: number of folds.
      seed: seed of the random order.
      groups: ``[n]``, values whose examples stay together; None for none.

    Returns:
      ``[n]``, fold of each example, from 0.

    >>> stratified_folds(np.array([0, 0, 1, 1]), 2, seed=0, groups=np.array([5, 6, 5, 6])).tolist()
    [0, 1, 0, 1]
    """
    _, classes = np.unique(labels, return_inverse=True)
    _, member = np.unique(np.arange(len(labels)) if groups is None else groups, return_inverse=True)
    counts = np.zeros((member.max(initial=-1) + 1, classes.max(initial=-1) + 1), int)
    np.add.at(counts, (member, classes), 1)
    total, filled = counts.sum(axis=0), np.zeros((count, counts.shape[1]), int)
    drawn = np.random.default_rng(seed).permutation(len(counts))
    order = drawn[np.argsort(-counts[drawn].sum(axis=1), kind="stable")]
    fold_of = np.zeros(len(counts), int)
    for group in order:
        crowd = filled @ (counts[group] / total)
        fold_of[group] = fold = np.lexsort((filled.sum(axis=1), crowd))[0]
        filled[fold] += counts[group]
    return fold_of[member]


def group_values(split: Split, name: str) -> np.ndarray:
    """Returns the values of a split's examples that say which of them stay together, ``[n]``.

    Args:
      split: the split.
      name: a column, or :data:`FOLDER`.

    Raises:
      ValueError: the split has no such column, or no paths of files.
    """
    if name == FOLDER and FOLDER not in split.columns:
        if "path" not in split.columns:
            raise ValueError(
                f"data.group_by: the examples of split {split.name!r} have no paths of files, from "
                f"which to take the {FOLDER}"
            )
        return np.array([str(PurePosixPath(_text(path)).parent) for path in split.columns["path"]])
    if name not in split.columns:
        listed = ", ".join([FOLDER, *split.columns])
        raise ValueError(
            f"data.group_by: split {split.name!r} has no column {name!r}"
            f"{nearest(name, [FOLDER, *split.columns])} (there are {listed})"
        )
    return split.columns[name]


def check_divided(
    name: str,
    folds: Int[np.ndarray, " n"],
    count: int,
    group_by: str = "",
    *,
    field: str = "data.fold",
) -> None:
    """Checks that a class can be trained without any one fold.

    Args:
      name: name of the class.
      folds: ``[n]``, the fold of each of its examples, from :func:`stratified_folds`.
      count: number of folds.
      group_by: name of what stays together; empty for single examples.
      field: name of the configuration field in errors.

    Raises:
      ValueError: there are fewer examples than folds, or all are in one fold.
    """
    if len(folds) < count:
        raise ValueError(
            f"{field}: got {count} folds, but {name} has {len(folds)} training chips: wanted at "
            "most as many folds as each class has chips"
        )
    if len(np.unique(folds)) < 2:
        raise ValueError(
            f"{field}: all {len(folds)} training chips of {name} are in one fold, so that none "
            f"would be left to train on: wanted at least 2 values of {group_by} for each class"
        )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
