"""Several splits of a data set as one: where classes are held apart, their own splits are not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxatr.data.dataset import Split


def concatenated(splits: Sequence[Split]) -> Split:
    """Returns the examples of several splits of one data set, one split after the other.

    It has the columns that all of them have, and the name that TFDS gives it, ``"train+test"``.

    Args:
      splits: at least one; of one alone, that one is returned.
    """
    if len(splits) == 1:
        return splits[0]
    shared = [name for name in splits[0].columns if all(name in s.columns for s in splits)]
    columns = {name: np.concatenate([split.columns[name] for split in splits]) for name in shared}
    name = "+".join(split.name for split in splits)
    return Split(name, _Records(splits), columns, splits[0].classes, splits[0].dtype)


class _Records:
    """The arrays of an example by its number among all."""

    def __init__(self, splits: Sequence[Split]):
        self._splits = splits
        self._ends = np.cumsum([len(split) for split in splits])

    def __getitem__(self, index: int) -> dict[str, Any]:
        which = int(np.searchsorted(self._ends, index, side="right"))
        before = int(self._ends[which - 1]) if which else 0
        return self._splits[which][index - before]
