"""Groups of rejected examples, as candidates for new classes (HDBSCAN).

Campello et al. (2013), "Density-based clustering based on hierarchical density estimates". A group
is where examples lie denser than around it; an example in none is noise. How many groups there are
is not given, but how few examples make one.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxatr.typing import Float, Int

DIMENSIONS = 50
"""Principal directions that are kept of longer vectors: density says little in more."""

FEWEST = 5
"""Examples that make a group."""

_DENSE = 3
"""Examples that make a dense place.

First tried on unknown classes of MSTAR, then confirmed on its known ones, grouped as if they were
unknown: with more of them classes ran into each other, and fewer chips were in a group. So groups
of MSTAR's unknown classes are no independent test of it.
"""


class Group(NamedTuple):
    """Examples that lie together.

    Attributes:
      members: ``[m]``, which of the examples, from the middle of the group outwards.
      spread: their mean distance from the one in the middle; of vectors of length 1, 0 for equal
        ones and about 1.4 for those that have nothing in common.
    """

    members: Int[np.ndarray, " m"]
    spread: float


def group(rows: Float[np.ndarray, "n d"], *, fewest: int = FEWEST) -> list[Group]:
    """Finds groups, the largest first, and of equal ones the tightest.

    Where no two groups stand apart, the examples are taken for one group, but for those that lie
    far off.

    Args:
      rows: ``[n, d]``, vectors whose Euclidean distances are compared.
      fewest: examples that make a group, at least 2.

    Raises:
      ValueError: ``fewest`` is below 2.
    """
    if fewest < 2:
        raise ValueError(f"fewest: got {fewest}, wanted 2 or more")
    if len(rows) < fewest:
        return []
    # Each takes a second to import, and nothing else has a use for them.
    from sklearn.cluster import HDBSCAN
    from sklearn.decomposition import PCA

    points = np.asarray(rows, np.float64)
    if (most := min(DIMENSIONS, len(points))) < points.shape[1]:
        points = PCA(most, svd_solver="randomized", random_state=0).fit_transform(points)
    labels = np.full(len(points), -1)
    options: dict[str, Any] = {"min_samples": min(_DENSE, fewest), "copy": True}
    for alone in (False, True):
        search = HDBSCAN(min_cluster_size=fewest, allow_single_cluster=alone, **options)
        labels = search.fit_predict(points)
        if labels.max() >= 0:
            break
    found = [_group(rows, np.flatnonzero(labels == c)) for c in range(labels.max() + 1)]
    return sorted(found, key=lambda one: (-len(one.members), one.spread))


def _group(rows: Float[np.ndarray, "n d"], members: Int[np.ndarray, " m"]) -> Group:
    own = np.asarray(rows[members], np.float64)
    squares = np.square(own).sum(axis=1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2 * own @ own.T, 0))
    middle = apart.sum(axis=1).argmin()
    order = np.argsort(apart[middle], kind="stable")
    others = np.delete(apart[middle], middle)
    return Group(members[order], float(others.mean()))
