"""A two-stage search of a large gallery: an estimate in few dimensions, then re-ranking.

The first stage estimates the nearest examples and classes from products in the leading directions
of the examples. The second compares only these in full, as retrieval systems re-rank a shortlist
(Jégou et al. 2011, "Searching in one billion vectors: re-rank with source coding"). The search is
approximate: it misses an example that the estimate ranks too low.
``experiments/benchmarks/reranking.py`` measures how many scores change.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.gallery.rounding import Rounded, at, products, products_at
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

DIRECTIONS = 64
"""Number of directions of the estimate."""

CANDIDATES = 8
"""Number of examples of a class that are compared in full."""

CLASSES = 4
"""Number of classes whose examples are compared in full; the others keep their estimate."""

WHOLE = 4096
"""Largest number of comparisons per query, examples times forms, for an exhaustive search."""

SAMPLE = 2048
"""Approximate number of examples that the directions are computed from."""

_FEW = 512
"""Number of examples up to which their products with each other give the directions."""


class Index(NamedTuple):
    """Examples projected to few directions, by class. Classes are padded to l, the largest size.

    Attributes:
      axes: ``[d, m]``, orthonormal directions.
      codes: ``[k, l, m]``, the projected examples of each class.
      half_squares: ``[k, l]``, half the examples' squared lengths; infinite for padding.
      rows: ``[k, l]``, indices of the examples in the gallery.
    """

    axes: Float[Array, "d m"]
    codes: Float[Array, "k l m"] | Rounded
    half_squares: Float[Array, "k l"]
    rows: Int[Array, "k l"]


def pays(shape: tuple[int, ...], forms: int = 1) -> bool:
    """Returns whether two stages take less work than comparing every example.

    Args:
      shape: shape ``(n, d)`` of the examples.
      forms: number of forms of each query, such as its shifts.
    """
    n, d = shape
    return n * forms > WHOLE and d > 2 * DIRECTIONS


def index(
    examples: Shaped[ArrayLike, "n d"],
    half_squares: Float[ArrayLike, " n"],
    labels: Int[ArrayLike, " n"],
    classes: int,
) -> Index:
    """Builds the index of a gallery's examples.

    Args:
      examples: ``[n, d]``.
      half_squares: ``[n]``, half their squared lengths; infinite for a row that no search finds.
      labels: ``[n]``, their classes, ascending.
      classes: k.
    """
    vectors, squares = np.asarray(examples, np.float32), np.asarray(half_squares, np.float32)
    found = vectors[np.isfinite(squares)]  # without the rows of gallery.with_room
    axes = _leading(found[:: -(-len(found) // SAMPLE)])
    starts = np.searchsorted(np.asarray(labels), np.arange(classes + 1))
    sizes = np.diff(starts)[:, None]
    places = np.arange(sizes.max())
    rows = np.minimum(starts[:-1, None] + places, len(vectors) - 1)
    own = np.where(places < sizes, squares[rows], np.float32(np.inf))
    return Index(*map(jnp.asarray, (axes, (vectors @ axes)[rows], own, rows.astype(np.int32))))


def _leading(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d m"]:
    """Computes leading directions, no more than there are examples.

    Those of few examples come from the eigenvectors of their products with each other, which take
    no factorisation of long vectors; those of many from subspace iteration (Halko et al. 2011,
    algorithm 4.4).
    """
    count, dimension = vectors.shape
    if count <= min(_FEW, dimension):
        exact = vectors.astype(np.float64)
        squares, weights = np.linalg.eigh(exact @ exact.T)  # ascending
        # Beyond the rank of the examples there is only rounding.
        chosen = np.flatnonzero(squares > 1e-12 * squares[-1])[-DIRECTIONS:]
        return (exact.T @ (weights[:, chosen] / np.sqrt(squares[chosen]))).astype(np.float32)
    axes = np.random.default_rng(0).normal(size=(dimension, DIRECTIONS)).astype(np.float32)
    for _ in range(3):
        axes, _ = np.linalg.qr(vectors.T @ (vectors @ axes))
    return axes


def nearest(
    examples: Float[Array, "n d"] | Rounded,
    index: Index,
    queries: Float[Array, "b s d"],
    estimated: tuple[int, ...],
) -> Float[Array, "b k"]:
    r"""Computes the proximity to the nearest example of each class; may be traced.

    Args:
      examples: ``[n, d]``.
      index: from :func:`index`, for the same examples.
      queries: ``[b, s, d]``, b queries in s forms each, of which the nearest one counts.
      estimated: indices of the forms that the first stage compares.

    Returns:
      ``[b, k]``, :math:`\max(q \cdot x - \lVert x \rVert^2 / 2)` over a class's examples x and the
      forms q; minus infinity for a class without examples. Classes that are not among the
      :data:`CLASSES` nearest by the estimate keep the estimate.
    """
    classes, size = index.half_squares.shape
    taken = queries[:, np.array(estimated)]
    b, forms, d = taken.shape
    codes = _dot(taken.reshape(b * forms, d), index.axes)
    if isinstance(index.codes, Rounded):
        found = products(index.codes, codes)
    else:
        found = _dot(codes, index.codes.reshape(classes * size, -1).T)
    beyond = found.reshape(b, forms, classes, size).max(axis=1) - index.half_squares[None]
    # The first of the top k below equals this maximum, but taking it makes XLA sort all values.
    estimate = beyond.max(axis=2)
    _, places = jax.lax.top_k(beyond, min(CANDIDATES, size))
    _, near = jax.lax.top_k(estimate, min(CLASSES, classes))  # [b, c]
    chosen = near[..., None] == np.arange(classes)[None, None]  # [b, c, k]
    places = places + size * np.arange(classes)[None, :, None]
    places = jnp.where(chosen[..., None], places[:, None], 0).sum(axis=2)  # [b, c, l]
    rows = at(index.rows.reshape(-1), places).reshape(b, -1)
    exact = products_at(examples, rows, queries).max(axis=1).reshape(places.shape)
    exact -= at(index.half_squares.reshape(-1), places)
    exact = jnp.where(chosen, exact.max(axis=2)[..., None], -jnp.inf).max(axis=1)
    return jnp.where(chosen.any(axis=1), exact, estimate)


_dot = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
