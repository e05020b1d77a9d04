"""Measures how well several saliency maps of one image agree."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxatr.typing import Float

AGREE = 0.5
"""Smallest rank correlation of maps that agree."""

CELLS = 8
"""Cells per side of the grid that maps are averaged on before they are compared, because gradients
are grainy and other maps are coarse."""


class Agreement(NamedTuple):
    """The agreement of the saliency maps of one image.

    Attributes:
      methods: names of the methods.
      correlations: ``[m, m]``, Spearman's rank correlation of each pair of maps; 0 with a constant
        map.
      groups: groups of methods that agree, largest first. A method that agrees with no other is a
        group of its own.
    """

    methods: tuple[str, ...]
    correlations: Float[np.ndarray, "m m"]
    groups: tuple[tuple[str, ...], ...]

    def sentence(self) -> str:
        """Describes in one sentence which methods agree."""
        first, alone = self.groups[0], [one for one, *more in self.groups if not more]
        if len(first) == 1:
            return "No two methods agree: do not trust any one of these maps by itself."
        among = [self.methods.index(name) for name in first]
        pairs = self.correlations[np.ix_(among, among)][np.triu_indices(len(among), 1)]
        mean = f"(mean rank correlation {pairs.mean():.2f})"
        if len(first) == len(self.methods):
            return f"All {len(first)} methods agree {mean}."
        rest = [f"{_listed(group)} agree" for group in self.groups[1:] if len(group) > 1]
        if alone:
            rest.append(f"{_listed(alone)} {'agrees' if len(alone) == 1 else 'agree'} with none")
        return f"{_listed(first)} agree {mean}; {'; '.join(rest)}."


def _listed(names: "tuple[str, ...] | list[str]") -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def agreement(maps: Mapping[str, Float[np.ndarray, "h w"]]) -> Agreement:
    """Compares the maps of one image by rank correlation.

    Maps are first averaged on a grid of :data:`CELLS` by :data:`CELLS` cells; smaller maps are
    compared by pixel. Groups come from average-linkage clustering, cut at :data:`AGREE`.

    Args:
      maps: two or more maps of one shape, in any unit, by method.

    Raises:
      ValueError: there are fewer than two maps, their shapes differ, or one is not finite.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import
    from scipy.spatial.distance import squareform
    from scipy.stats import rankdata

    shapes = {np.shape(one) for one in maps.values()}
    if len(maps) < 2 or len(shapes) > 1:
        raise ValueError(
            f"maps: got {len(maps)} of shapes {sorted(shapes)}, wanted two or more of one shape"
        )
    if bad := [name for name, one in maps.items() if not np.isfinite(one).all()]:
        raise ValueError(f"maps: got values that are not finite from {', '.join(bad)}")
    ranks = np.stack([rankdata(_cells(one)) for one in maps.values()])
    ranks -= ranks.mean(axis=1, keepdims=True)
    lengths = np.linalg.norm(ranks, axis=1, keepdims=True)
    ranks /= np.where(lengths > 0, lengths, 1)
    correlations = np.clip(ranks @ ranks.T, -1, 1)  # rounding would give negative distances
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
    """Averages a map, less its first value, over its cells, whose sides may differ by a pixel."""
    values = np.asarray(values, np.float64)
    values = values - values[0, 0]  # rounding would give the means of a constant map an order
    for axis, side in enumerate(values.shape):
        starts = np.linspace(0, side, min(CELLS, side), endpoint=False).astype(int)
        sums = np.add.reduceat(values, starts, axis=axis)
        counts = np.diff([*starts, side])
        values = sums / (counts[:, None] if axis == 0 else counts)
    return values.ravel()
