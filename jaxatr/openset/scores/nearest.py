"""Distance to the nearest training example, the score of a search in an embedding."""

import jax
import jax.numpy as jnp

from jaxatr.openset import nearest_neighbour
from jaxatr.openset.outputs import Outputs
from jaxatr.openset.score import Score
from jaxatr.typing import Array


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
    score=lambda model, out: nearest_neighbour.score(model, out.more["features"], k=1),
    traced=_traced,
    fit=lambda out, _: nearest_neighbour.fit(out.more["features"]),
    needs=("features",),
    scale="distance",
    recorded=False,
    model=nearest_neighbour.NearestNeighbour,
)
