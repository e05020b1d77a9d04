"""Distance to the nearest training example, the score of a search in an embedding."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Answer, Comparing, Score
from jaxatr.typing import Array


def _score(model: nearest_neighbour.NearestNeighbour, outputs: Outputs) -> Array | Answer:
    """Names the class where the nearest example was added to the training's."""
    features = outputs.more["features"]
    if not len(np.asarray(model.further)):
        return nearest_neighbour.score(model, features, k=1)
    distances, labels = nearest_neighbour.nearest(model, features)
    return Answer(-distances, np.where(labels >= 0, labels, outputs.predicted))


def _traced(model: nearest_neighbour.NearestNeighbour, outputs: Outputs) -> Array:
    """Takes the distances from one product with the gallery.

    The search of :func:`jaxatr.openset.nearest_neighbour.score` loops over queries and casts bits,
    which ONNX cannot.
    """
    features, bank = jnp.asarray(outputs.more["features"]), jnp.asarray(model.features)
    lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
    unit = features / jnp.where(lengths > 0, lengths, 1)
    products = jnp.dot(unit, bank.T, precision=jax.lax.Precision.HIGHEST)
    squares = jnp.sum(jnp.square(unit), axis=1) + jnp.min(
        jnp.sum(jnp.square(bank), axis=1) - 2 * products, axis=1
    )
    return -jnp.sqrt(jnp.maximum(squares, 0))


SCORE = Score(
    name="nearest",
    title="nearest chip",
    score=_score,
    traced=_traced,
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
