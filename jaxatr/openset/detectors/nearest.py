"""Distance to the nearest training example, as in a search of an embedding."""

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.nearest_neighbour import NearestNeighbour
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array, ArrayLike, Float


def _score(model: NearestNeighbour, features: Float[ArrayLike, "b d"]) -> Array | Answer:
    """Computes the score, and names the class of examples that are nearest to an added one."""
    if not len(model.further):
        return nearest_neighbour.score(model, features, k=1)
    distances, labels = nearest_neighbour.nearest(model, features)
    return Answer(-distances, labels)


def _traced(model: NearestNeighbour, features: Float[ArrayLike, "b d"]) -> Array:
    return nearest_neighbour.traced_score(model, features, k=1)


PART = Score.of_arrays(
    "nearest",
    "nearest chip",
    _score,
    nearest_neighbour.fit,
    traced=_traced,
    scale="distance",
    recorded=False,
    model=NearestNeighbour,
    comparing=Comparing(nearest_neighbour.unit, nearest_neighbour.with_examples),
)
