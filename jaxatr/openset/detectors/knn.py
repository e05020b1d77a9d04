"""Distance to the 50th nearest training example (Sun et al. 2022, "Deep nearest neighbors").

With a class of fewer than 100 training examples, it is the distance to the n-th nearest, with n
half the number of examples of the smallest class: a neighbour of a higher rank may be of another
class.
"""

from typing import NamedTuple

import jax
import numpy as np

from jaxatr.openset import gallery, nearest_neighbour
from jaxatr.openset.nearest_neighbour import NearestNeighbour
from jaxatr.openset.score import Score
from jaxatr.typing import Array, ArrayLike, Float, Int

NEIGHBOUR = 50
"""Rank of the neighbour, as in the paper for CIFAR-10."""

BLOCK = 64
"""Number of queries that are compared at once, which bounds memory."""


class Neighbours(NamedTuple):
    """A fitted model.

    Attributes:
      features: ``[n, d]``, the examples' features, scaled to length 1; in a graph also in 16 or 8
        bits.
      further: ``[0]``, unused; runs of earlier versions have it.
      k: ``[]``, rank of the neighbour.
    """

    features: Float[ArrayLike, "n d"]
    further: Int[ArrayLike, " m"] = np.zeros(0, np.int32)
    k: Int[ArrayLike, ""] = np.array(NEIGHBOUR)

    searched = "features"  # the examples, for jaxatr.openset.graph and gallery.ready


def fit(
    features: Float[ArrayLike, "n d"], labels: Int[ArrayLike, " n"], *, k: int = NEIGHBOUR
) -> Neighbours:
    """Stores features, and bounds k by half of the smallest class.

    Args:
      k: rank of the neighbour.

    Raises:
      ValueError: a feature is not finite, or ``k`` is not positive.
    """
    if k < 1:
        raise ValueError(f"k: got {k}, wanted at least 1")
    smallest = np.unique_counts(np.asarray(labels)).counts.min(initial=2 * k)
    return Neighbours(
        nearest_neighbour.fit(features).features, k=np.array(max(1, min(k, smallest // 2)))
    )


def _rank(model: Neighbours) -> int:
    return min(int(model.k), np.shape(model.features)[0])  # of runs of earlier versions, 50


def score(model: Neighbours, features: Float[ArrayLike, "b d"]) -> Float[np.ndarray, " b"]:
    """Computes minus the distance to the k-th nearest training example.

    XLA finds candidates. NumPy compares them: where features are long, it takes less time for it.
    """
    model = gallery.ready(model)
    examples, k = np.asarray(model.features), _rank(model)

    def distances(queries: Float[np.ndarray, "b d"]) -> Float[np.ndarray, " b"]:
        found = np.zeros(len(queries), np.float32)
        for place, nearest in enumerate(np.asarray(_candidates(model.features, queries, k))):
            # By differences: the squares of a product's terms cancel where examples are close.
            apart = examples[nearest]
            apart -= queries[place]
            found[place] = np.partition(np.einsum("nd,nd->n", apart, apart), k - 1)[k - 1]
        return np.sqrt(found)

    return -gallery.in_blocks(distances, gallery.unit(np.asarray(features, np.float32)), BLOCK)


_candidates = jax.jit(nearest_neighbour.candidates, static_argnames="k")


def _traced(model: Neighbours, features: Float[ArrayLike, "b d"]) -> Float[Array, " b"]:
    searched = NearestNeighbour(model.features)
    return nearest_neighbour.traced_score(searched, features, k=_rank(model))


PART = Score.of_arrays(
    "knn", "k-NN", score, fit, traced=_traced, shapes=("k",), recorded=False, model=Neighbours
)
