"""Distance to the nearest training example, the score of a search in an embedding."""

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.score import Score

SCORE = Score(
    name="nearest",
    title="nearest chip",
    score=lambda model, out: nearest_neighbour.score(model, out.more["features"], k=1),
    traced=lambda model, out: nearest_neighbour.traced_score(model, out.more["features"], k=1),
    fit=lambda out, _: nearest_neighbour.fit(out.more["features"]),
    needs=("features",),
    scale="distance",
    recorded=False,
    model=nearest_neighbour.NearestNeighbour,
)
