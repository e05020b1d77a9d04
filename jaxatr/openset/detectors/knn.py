"""Distance to the 50th nearest training example (Sun et al. 2022, "Deep nearest neighbors").

With a class of fewer training examples, it is the distance to the n-th nearest, with n the number
of examples of the smallest class: a neighbour of a higher rank is of another class.
"""

from typing import NamedTuple

import numpy as np

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.nearest_neighbour import NearestNeighbour
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

NEIGHBOUR = 50
"""Rank of the neighbour, as in the paper for CIFAR-10."""


class Neighbours(NamedTuple):
    """A fitted model.

    Attributes:
      features: ``[n, d]``, the examples' features, scaled to length 1.
      further: ``[0]``, unused; runs of earlier versions have it.
      k: ``[]``, rank of the neighbour.
    """

    features: Float[ArrayLike, "n d"]
    further: Int[ArrayLike, " m"] = np.zeros(0, np.int32)
    k: Int[ArrayLike, ""] = np.array(NEIGHBOUR)


def fit(
    features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"], *, k: int = NEIGHBOUR
) -> Neighbours:
    """Stores features, and bounds k by the number of examples of the smallest class.

    Args:
      k: rank of the neighbour.

    Raises:
      ValueError: a feature is not finite, or ``k`` is not positive.
    """
    if k < 1:
        raise ValueError(f"k: got {k}, wanted at least 1")
    smallest = np.unique_counts(np.asarray(labels)).counts.min(initial=k)
    return Neighbours(nearest_neighbour.fit(features).features, k=np.array(min(k, smallest)))


def _rank(model: Neighbours) -> int:
    return min(int(model.k), len(model.features))  # of runs of earlier versions, 50


def score(model: Neighbours, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    """Computes minus the distance to the k-th nearest training example."""
    return nearest_neighbour.score(NearestNeighbour(model.features), features, k=_rank(model))


def _traced(model: Neighbours, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    searched = NearestNeighbour(model.features)
    return nearest_neighbour.traced_score(searched, features, k=_rank(model))


PART = Score.of_arrays(
    "knn", "k-NN", score, fit, traced=_traced, shapes=("k",), recorded=False, model=Neighbours
)
