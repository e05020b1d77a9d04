"""Groups rejected examples into candidates for new classes (HDBSCAN).

Campello et al. (2013), "Density-based clustering based on hierarchical density estimates". A group
is a region that is denser than its surroundings; examples in no group are noise. The number of
groups is not given; the smallest size of a group is.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxatr.extras import extra
from jaxatr.typing import Float, Int

DIMENSIONS = 50
"""Number of principal directions to which longer vectors are reduced, because densities are
unreliable in many dimensions."""

FEWEST = 5
"""Default for the smallest size of a group."""

_DENSE = 3
"""Number of neighbours from which a density is estimated (HDBSCAN's ``min_samples``).

The value was first tried on MSTAR's unknown classes, and then confirmed on its known ones, grouped
as if they were unknown: larger values merged classes and left more chips ungrouped. MSTAR's unknown
classes are therefore not an independent test of it.
"""


class Group(NamedTuple):
    """A group of similar examples.

    Attributes:
      members: ``[m]``, the examples' indices, from the centre of the group outwards.
      spread: mean distance of the others to the central example. For unit vectors it is 0 if they
        are equal, and about 1.4 if they are unrelated.
    """

    members: Int[np.ndarray, " m"]
    spread: float


def group(rows: Float[np.ndarray, "n d"], *, fewest: int = FEWEST) -> list[Group]:
    """Finds groups, largest first; groups of equal size are sorted by their spread.

    If no two groups can be separated, all examples but the outliers form one group.

    Args:
      rows: ``[n, d]``, vectors compared by Euclidean distance.
      fewest: smallest size of a group, at least 2.

    Raises:
      ValueError: ``fewest`` is below 2.
      ImportError: scikit-learn, of the extra ``report``, is not installed.
    """
    if fewest < 2:
        raise ValueError(f"fewest: got {fewest}, wanted 2 or more")
    if len(rows) < fewest:
        return []
    cluster, decomposition = (  # both take a second to import and are used only here
        extra(f"sklearn.{name}", "report", "grouping") for name in ("cluster", "decomposition")
    )
    points = np.asarray(rows, np.float64)
    if (most := min(DIMENSIONS, len(points))) < points.shape[1]:
        points = decomposition.PCA(most, svd_solver="randomized", random_state=0).fit_transform(
            points
        )
    labels = np.full(len(points), -1)
    options: dict[str, Any] = {"min_samples": min(_DENSE, fewest), "copy": True}
    for alone in (False, True):
        search = cluster.HDBSCAN(min_cluster_size=fewest, allow_single_cluster=alone, **options)
        labels = search.fit_predict(points)
        if labels.max() >= 0:
            break
    groups = [_group(rows, np.flatnonzero(labels == c)) for c in range(labels.max() + 1)]
    return sorted(groups, key=lambda one: (-len(one.members), one.spread))


def _group(rows: Float[np.ndarray, "n d"], members: Int[np.ndarray, " m"]) -> Group:
    own = np.asarray(rows[members], np.float64)
    own = own - own.mean(axis=0)  # so that products lose no digits to a common offset
    squares = np.square(own).sum(axis=1)
    sums = np.sqrt(np.maximum(squares[:, None] + squares - 2 * own @ own.T, 0)).sum(axis=1)
    middle = sums.argmin()
    apart = np.linalg.norm(own - own[middle], axis=1)
    order = np.argsort(apart, kind="stable")
    others = np.delete(apart, middle)
    return Group(members[order], float(others.mean()))
