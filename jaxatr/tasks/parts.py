"""The examples of a data set that a task trains on, validates on and tests on."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxatr import data, openset
from jaxatr.typing import Config


class Part:
    """Some examples of a data set's split, with labels among the known classes."""

    def __init__(self, split: data.Split, indices: np.ndarray, labels: np.ndarray):
        """Args: the split, which of its examples, and their labels (``openset.UNKNOWN``: none)."""
        self.split, self.indices, self.labels = split, indices, labels

    def column(self, name: str) -> np.ndarray | None:
        """Returns a per-example field, or ``None`` where the data set has no such field."""
        column = self.split.columns.get(name)
        return None if column is None else column[self.indices]


def parts_of(dataset: data.Dataset, split: Any, fields: Config, seed: int) -> dict[str, Part]:
    """Returns the training, validation (where wanted) and test examples."""
    for name in (fields.train_split, fields.test_split):
        if name not in dataset.splits:
            raise ValueError(
                f"data: no split {name!r} in {dataset.name}, which has {', '.join(dataset.splits)}"
            )
    to_known = np.full(len(dataset.classes), openset.UNKNOWN, np.int32)
    for label, name in enumerate(split.known):
        to_known[dataset.classes.index(name)] = label
    where = {name: tuple(values) for name, values in fields.select.items() if values}

    train = dataset.splits[fields.train_split]
    indices = data.select(train, classes=split.known, where=where)
    labels = to_known[train.columns["label"][indices]]
    if missing := [name for i, name in enumerate(split.known) if not np.any(labels == i)]:
        raise ValueError(
            f"data: the split {fields.train_split!r} of {dataset.name} holds no example of "
            f"{', '.join(missing)}, known by open_set.split"
        )
    parts = {}
    if fields.validation:
        kept, held_out = data.holdout(labels, fields.validation, seed)
        if len(held_out):
            parts["validation"] = Part(train, indices[held_out], labels[held_out])
            indices, labels = indices[kept], labels[kept]
        else:
            warnings.warn(
                f"data.validation: a share of {fields.validation} of each class is less than one "
                "image, so nothing is validated and no γ is fitted",
                stacklevel=3,
            )
    parts["train"] = Part(train, indices, labels)

    test = dataset.splits[fields.test_split]
    indices = data.select(test, classes=split.known + split.unknown, where=where)
    parts["test"] = Part(test, indices, to_known[test.columns["label"][indices]])
    return parts


def check_shapes(parts: Mapping[str, Part], chip: data.Chip) -> None:
    """Refuses test chips of another shape: a network of convolutions would take them in silence."""
    shapes = {name: part.split.chip_shape(part.indices, chip) for name, part in parts.items()}
    for name, shape in shapes.items():
        if shape != shapes["train"]:
            raise ValueError(
                f"data: chips of shape {shape} in the {name} part and {shapes['train']} in the "
                "training part: set data.size, or data.center_crop"
            )
