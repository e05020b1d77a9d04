"""Distance to the 50th nearest training example (Sun et al. 2022, "Deep nearest neighbors")."""

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.score import Score

NEIGHBOUR = 50
"""Rank of the neighbour, as in the paper for CIFAR-10; with fewer examples, the farthest one."""

SCORE = Score(
    name="knn",
    title="k-NN",
    score=lambda model, out: nearest_neighbour.score(
        model, out.more["features"], k=min(NEIGHBOUR, len(model.features))
    ),
    traced=lambda model, out: nearest_neighbour.traced_score(
        model, out.more["features"], k=min(NEIGHBOUR, len(model.features))
    ),
    fit=lambda out, _: nearest_neighbour.fit(out.more["features"]),
    needs=("features",),
    recorded=False,
    model=nearest_neighbour.NearestNeighbour,
)
