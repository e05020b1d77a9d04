"""Chooses which of many unlabelled examples to label next, by uncertainty and by diversity.

Examples between two classes change a classifier most, but the most uncertain ones are often alike.
So the default takes twenty times as many examples as are wanted, those with the smallest margins,
divides them into clusters, and chooses one of each (Zhdanov 2019, "Diverse mini-batch active
learning"). Examples that are judged unknown have no class to be uncertain about; groups of them
stand for classes that nobody has named yet.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxatr.extras import extra
from jaxatr.openset import nearest_neighbour
from jaxatr.openset.gallery.reduction import farthest_first
from jaxatr.typing import Bool, Float, Int

METHODS = ("mixed", "margin", "coverage")
"""How examples that are judged known are chosen: by both, by uncertainty alone, or by diversity
alone (greedy k-centre: Sener and Savarese 2018). The first is the default."""

UNCERTAIN, COVERS, GROUPED, STRANGE = "uncertain", "covers", "grouped", "strange"
"""Why an example is chosen: between two classes, unlike the others and the labelled ones, from a
group of unknown examples, or unknown and unlike the other unknown ones."""

_CANDIDATES = 20  # for each example that is chosen, whose margins are smallest
_PASSES = 30  # over the candidates, at most, in the search for clusters
_CERTAIN = 0.5  # margin from which an example of the mixed method is not called uncertain


class Choice(NamedTuple):
    """An example to label.

    Attributes:
      row: its index.
      why: one of :data:`UNCERTAIN`, :data:`COVERS`, :data:`GROUPED` and :data:`STRANGE`.
      group: index of its group; -1 for none.
    """

    row: int
    why: str
    group: int = -1


def margins(probabilities: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """Computes the difference between the two largest probabilities; 1 for a row with a NaN.

    Args:
      probabilities: ``[n, k]``, of the classes, which add up to 1. The second largest of a single
        class is 0.

    >>> margins(np.array([[0.5, 0.2, 0.3], [1.0, 0.0, 0.0], [np.nan, 0.0, 1.0]])).tolist()
    [0.2, 1.0, 1.0]
    """
    ordered = np.sort(np.pad(np.asarray(probabilities, np.float64), [(0, 0), (1, 0)]), axis=1)
    found = ordered[:, -1] - ordered[:, -2]
    return np.where(np.isnan(probabilities).any(axis=1), 1.0, found)


def to_label(
    features: Float[np.ndarray, "n d"],
    probabilities: Float[np.ndarray, "n k"],
    count: int,
    *,
    unknown: Bool[np.ndarray, " n"] | None = None,
    groups: Sequence[Int[np.ndarray, " m"]] = (),
    labelled: Float[np.ndarray, "l d"] | None = None,
    method: str = METHODS[0],
    seed: int = 0,
) -> list[Choice]:
    """Chooses examples to label, the most useful first; equal ones by their order.

    Unknown examples get their share of the choices, but at most half while there are enough known
    ones: the centres of their groups first, then those farthest from what is chosen. They are
    spread evenly over the ranks.

    Args:
      features: ``[n, d]``, compared by Euclidean distance. Rows that are not finite come last.
      probabilities: ``[n, k]``, of the classes; a row with a NaN counts as certain.
      count: number of examples to choose, 1 to n.
      unknown: ``[n]``, which examples are judged unknown; by default none.
      groups: indices of the examples of each group of unknown ones, from its centre outwards.
      labelled: ``[l, d]``, features of the examples that have labels, from which ``"coverage"``
        begins; by default it begins with the example nearest to the mean.
      method: one of :data:`METHODS`.
      seed: seed of the clusters of ``"mixed"``.

    Raises:
      ValueError: ``count`` is out of range, or there is no such method.
      ImportError: scikit-learn, of the extra ``report``, is not installed.
    """
    total = len(features)
    if not 1 <= count <= total:
        raise ValueError(f"count: got {count}, wanted 1 to {total}, the number of examples")
    if method not in METHODS:
        raise ValueError(f"method: got {method!r}, wanted one of {', '.join(METHODS)}")
    rejected = np.zeros(total, bool) if unknown is None else np.asarray(unknown, bool)
    known, strangers = np.flatnonzero(~rejected), np.flatnonzero(rejected)
    share = min(int(count * len(strangers) / total + 0.5), count // 2)
    share = max(share, count - len(known))
    margin = margins(probabilities)

    def of_known(rows: Int[np.ndarray, " m"], size: int) -> Int[np.ndarray, " s"]:
        if method == "margin":
            return np.argsort(margin[rows], kind="stable")[:size]
        if method == "mixed":
            return _diverse(features[rows], margin[rows], size, seed)
        return _spread(features[rows], size, labelled)

    def of_strangers(rows: Int[np.ndarray, " m"], size: int) -> Int[np.ndarray, " s"]:
        place = {row: number for number, row in enumerate(rows.tolist())}
        centres = [place[int(one[0])] for one in groups if int(one[0]) in place]
        return farthest_first(features[rows], size, chosen=centres or _middle(features[rows]))

    # Certain examples are taken where there is nothing else.
    limit = {"margin": 1.0, "mixed": _CERTAIN, "coverage": -np.inf}[method]
    group_of = {int(row): number for number, one in enumerate(groups) for row in one}
    chosen = [
        Choice(row, UNCERTAIN if margin[row] < limit else COVERS)
        for row in _finite_first(features, known, count - share, of_known)
    ]
    others = [
        Choice(row, GROUPED if row in group_of else STRANGE, group_of.get(row, -1))
        for row in _finite_first(features, strangers, share, of_strangers)
    ]
    placed = [
        ((number + 0.5) / len(some), one)
        for some in (chosen, others)
        for number, one in enumerate(some)
    ]
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])]


def _finite_first(
    features: Float[np.ndarray, "n d"],
    rows: Int[np.ndarray, " m"],
    size: int,
    choose: Callable[[Int[np.ndarray, " f"], int], Int[np.ndarray, " s"]],
) -> list[int]:
    """Chooses among the rows whose features are finite; the others follow if those are too few."""
    finite = np.isfinite(features[rows]).all(axis=1)
    usable = rows[finite]
    few = min(size, len(usable))
    found = usable[choose(usable, few)] if few else usable[:0]
    return [*found.tolist(), *rows[~finite][: size - few].tolist()]


def _diverse(
    features: Float[np.ndarray, "n d"], margin: Float[np.ndarray, " n"], size: int, seed: int
) -> Int[np.ndarray, " s"]:
    """Chooses the example nearest to the centre of each cluster of those with small margins.

    In the clusters, an example has the weight (1 - margin)², so that centres lie where examples are
    uncertain. The smallest margin comes first. If there are fewer clusters than wanted, because
    examples are equal, those with the smallest margins follow.
    """
    order = np.argsort(margin, kind="stable")[: _CANDIDATES * size]
    if len(order) <= size:
        return order
    clusters = extra("sklearn.cluster", "report", "the method mixed")  # takes a second to import
    points = np.asarray(features[order], np.float64)
    weights = np.maximum((1 - margin[order]) ** 2, 1e-6)  # not all of them 0
    model = clusters.KMeans(size, n_init=1, max_iter=_PASSES, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer distinct points than clusters
        labels = model.fit(points, sample_weight=weights).labels_
    apart = np.square(points - model.cluster_centers_[labels]).sum(axis=1)
    first = np.lexsort((apart, labels))
    nearest = first[np.unique(labels[first], return_index=True)[1]]
    left = np.setdiff1d(np.arange(len(order)), nearest)[: size - len(nearest)]
    return order[[*np.sort(nearest), *left]]


def _spread(
    features: Float[np.ndarray, "n d"], size: int, labelled: Float[np.ndarray, "l d"] | None
) -> Int[np.ndarray, " s"]:
    """Chooses examples one after another, each the farthest from the labelled and chosen ones."""
    if labelled is None or not len(labelled):
        return farthest_first(features, size, chosen=_middle(features))
    distances, _ = nearest_neighbour.neighbours(labelled, features, 1)
    return farthest_first(features, size, away=np.square(np.asarray(distances, np.float64)[:, 0]))


def _middle(features: Float[np.ndarray, "n d"]) -> list[int]:
    """Returns the example nearest to the mean."""
    mean = features.mean(axis=0, dtype=np.float64)
    return [int(np.square(features - mean).sum(axis=1).argmin())]
