"""How far several saliency maps of one image agree on where they look."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float

AGREE = 0.5
"""Rank correlation from which two maps count as agreeing."""

CELLS = 8
"""Cells of a side on which maps are compared: gradients are grainy, other maps are coarse."""


class Agreement(NamedTuple):
    """Maps compared with each other.

    Attributes:
      methods: names of the methods.
      correlations: ``[m, m]``, Spearman's rank correlation of each two maps; 0 with one that is the
        same everywhere.
      groups: methods that agree, the largest group first; one that agrees with none is alone.
    """

    methods: tuple[str, ...]
    correlations: Float[np.ndarray, "m m"]
    groups: tuple[tuple[str, ...], ...]

    def sentence(self) -> str:
        """Says in a sentence which methods agree."""
        first, alone = self.groups[0], [one for one, *more in self.groups if not more]
        if len(first) == 1:
            return "No two methods agree: none of these maps is to be trusted by itself."
        among = [self.methods.index(name) for name in first]
        pairs = self.correlations[np.ix_(among, among)][np.triu_indices(len(among), 1)]
        mean = f"(mean rank correlation {pairs.mean():.2f})"
        if len(first) == len(self.methods):
            return f"All {len(first)} methods agree {mean}."
        said = [f"{_listed(group)} agree" for group in self.groups[1:] if len(group) > 1]
        if alone:
            said.append(f"{_listed(alone)} {'agrees' if len(alone) == 1 else 'agree'} with none")
        return f"{_listed(first)} agree {mean}; {'; '.join(said)}."


def _listed(names: "tuple[str, ...] | list[str]") -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def agreement(maps: Mapping[str, Float[np.ndarray, "h w"]]) -> Agreement:
    """Compares the maps of one image by the order in which they rank its parts.

    The parts are :data:`CELLS` by as many cells, or the pixels of a smaller map. Groups are those
    of average linkage, cut at :data:`AGREE`.

    Args:
      maps: name of a method to its map, in any unit; two or more.

    Raises:
      ValueError: there are fewer than two maps, or their shapes differ.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    shapes = {np.shape(one) for one in maps.values()}
    if len(maps) < 2 or len(shapes) > 1:
        raise ValueError(f"maps: got {len(maps)} of shapes {sorted(shapes)}, wanted two of one")
    ranks = np.stack([rankdata(_cells(np.asarray(one))) for one in maps.values()])
    ranks -= ranks.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(ranks, axis=1, keepdims=True)
    ranks /= np.where(lengths > 0, lengths, 1)
    correlations = ranks @ ranks.T
    np.fill_diagonal(correlations, 1)
    distances = squareform(1 - correlations, checks=False)
    numbers = fcluster(linkage(distances, "average"), 1 - AGREE, "distance")
    names = tuple(maps)
    groups = [
        tuple(n for n, of in zip(names, numbers, strict=True) if of == i) for i in set(numbers)
    ]
    groups.sort(key=lambda group: (-len(group), names.index(group[0])))
    return Agreement(names, correlations, tuple(groups))


def _cells(values: Float[np.ndarray, "h w"]) -> Float[np.ndarray, " n"]:
    """Averages a map over its cells, which differ by a pixel where they must."""
    for axis, side in enumerate(values.shape):
        starts = np.linspace(0, side, min(CELLS, side), endpoint=False).astype(int)
        sums = np.add.reduceat(values, starts, axis=axis, dtype=np.float64)
        counts = np.diff([*starts, side])
        values = sums / (counts[:, None] if axis == 0 else counts)
    return values.ravel()
