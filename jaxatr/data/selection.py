"""Selection of examples by class, by scalar columns, or by a stratified draw."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxatr.data.class_names import class_name
from jaxatr.data.dataset import Split
from jaxatr.resolve import nearest
from jaxatr.typing import Int, Shaped


def select(
    split: Split,
    *,
    classes: Sequence[str] | None = None,
    where: Mapping[str, Any] | None = None,
) -> Int[np.ndarray, " n"]:
    """Returns the numbers ``[n]`` of the examples that meet all conditions, in ascending order.

    Args:
      split: a split of a data set.
      classes: names of the classes to keep; None keeps all.
      where: columns to the accepted value or values, as in
        ``{"range_m": (1000, 2000), "band": "visible"}``.

    Raises:
      ValueError: a class, column or value does not exist, or no example meets all conditions.
    """
    keep = np.ones(len(split), bool)
    if classes is not None:
        classes = [class_name(name) for name in classes]
        for name in classes:
            if name not in split.classes:
                raise ValueError(
                    f"there is no class {name!r}{nearest(name, split.classes)} "
                    f"(there are {', '.join(split.classes)})"
                )
        labels = [split.classes.index(name) for name in classes]
        keep &= np.isin(split.columns["label"], labels)
    for column, accepted in (where or {}).items():
        keep &= np.isin(_column(split, column), _values(split, column, accepted))
    if not keep.any():
        raise ValueError(f"no example of split {split.name!r} has classes={classes}, where={where}")
    return np.flatnonzero(keep)


def _column(split: Split, name: str) -> np.ndarray:
    if name not in split.columns:
        raise ValueError(
            f"split {split.name!r} has no column {name!r}"
            f"{nearest(name, split.columns)} (it has {', '.join(split.columns)})"
        )
    return split.columns[name]


def _values(split: Split, column: str, accepted: Any) -> list[Any]:
    values = [accepted] if isinstance(accepted, str) or np.isscalar(accepted) else list(accepted)
    present = np.unique(split.columns[column])
    kind = present.dtype.type if present.dtype.kind == "f" else float
    stored = [kind(value) if isinstance(value, float) else value for value in values]
    for value, own in zip(values, stored, strict=True):
        if not np.isin(own, present):
            shown = ", ".join(map(str, present[:12])) + (", …" if len(present) > 12 else "")
            raise ValueError(
                f"column {column!r} of split {split.name!r} never has the value "
                f"{value!r} (it has {shown})"
            )
    return stored


def holdout(
    labels: Int[np.ndarray, " n"],
    fraction: float,
    seed: int,
    *,
    groups: Shaped[np.ndarray, " n"] | None = None,
) -> tuple[Int[np.ndarray, " t"], Int[np.ndarray, " v"]]:
    """Splits positions into training and validation, class by class.

    Args:
      labels: ``[n]``, one label per position.
      fraction: fraction of each class to hold out, in ``[0, 1)``; the number is rounded, and at
        least one example of each class stays in training.
      seed: seed of the draw.
      groups: ``[n]``, numbers or names of groups that stay together, each within one class. If
        given, groups are counted and drawn instead of examples.

    Returns:
      ``(train, validation)``: positions in ``0..n-1``, each in ascending order.

    Raises:
      ValueError: the fraction is out of range, or there are no labels.
    """
    labels = np.asarray(labels)
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction: got {fraction}, wanted a held-out fraction in [0, 1)")
    if not len(labels):
        raise ValueError("labels: got none, wanted at least one")
    if groups is not None:
        _, first, member = np.unique(groups, return_index=True, return_inverse=True)
        _, held_groups = holdout(labels[first], fraction, seed)
        held = np.isin(member, held_groups)
        return np.flatnonzero(~held), np.flatnonzero(held)
    generator = np.random.default_rng(seed)
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        held[members[: min(round(fraction * len(members)), len(members) - 1)]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
