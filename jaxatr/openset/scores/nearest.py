"""Distance to the nearest training example, as in a search of an embedding."""

import numpy as np

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array


def _score(model: nearest_neighbour.NearestNeighbour, outputs: Outputs) -> Array | Answer:
    """Computes the score, and names the class of examples that are nearest to an added one."""
    features = outputs.more["features"]
    if not len(np.asarray(model.further)):
        return nearest_neighbour.score(model, features, k=1)
    distances, labels = nearest_neighbour.nearest(model, features)
    return Answer(-distances, np.where(labels >= 0, labels, outputs.predicted))


SCORE = Score(
    name="nearest",
    title="nearest chip",
    score=_score,
    traced=lambda model, out: nearest_neighbour.traced_score(model, out.more["features"], k=1),
    fit=lambda out, _: nearest_neighbour.fit(out.more["features"]),
    needs=("features",),
    scale="distance",
    recorded=False,
    model=nearest_neighbour.NearestNeighbour,
    comparing=Comparing(
        lambda model, out: nearest_neighbour.unit(model, out.more["features"]),
        nearest_neighbour.with_examples,
    ),
)
