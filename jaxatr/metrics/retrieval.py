"""Measures of an embedding: does a search among the other examples find the right class?

Every example is a query against all others, by Euclidean distance; it never finds itself. Distances
are computed in single precision, a block of queries at a time; of equal distances, the lower index
comes first. The search is exhaustive.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


def recall_at_k(
    embeddings: ArrayLike,
    labels: ArrayLike,
    ks: Iterable[int] = (1, 2, 4, 8),
    *,
    block_size: int = 1024,
) -> dict[int, float]:
    """Returns for each k the share of queries with one of their class among the k nearest.

    (Jegou et al. 2011; as the metric-learning literature uses it.) A query that is alone in its
    class counts as missed.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      ks: neighbours to look at, at least 1 each.
      block_size: queries at a time; memory is ``block_size * n``.

    Raises:
      ValueError: there are fewer than two examples, an embedding is not finite, or a k or the block
        size is below 1.

    >>> recall_at_k([[0.0], [1.0], [1.5], [9.0]], [0, 0, 1, 1], ks=(1, 2))
    {1: 0.5, 2: 0.75}
    """
    ks = tuple(ks)
    for k in ks:
        if k < 1:
            raise ValueError(f"ks: got {k}, wanted at least 1")
    rank = _over_blocks(_rank_of_own_class, embeddings, labels, block_size)
    return {k: float(np.mean(rank < k)) for k in ks}


def map_at_r(embeddings: ArrayLike, labels: ArrayLike, *, block_size: int = 1024) -> float:
    """Returns the mean average precision at R (Musgrave et al. 2020, section 4).

    For a query of a class with R other members: the mean, over the R nearest, of the precision at
    each place that holds its class, and of 0 at the others. Queries alone in their class, which
    have no R, are left out.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      block_size: queries at a time; memory is ``block_size * n``.

    Raises:
      ValueError: as :func:`recall_at_k`; or no class has two members.

    >>> map_at_r([[0.0], [1.0], [1.5], [9.0]], [0, 0, 1, 1])
    0.5
    """
    embeddings, labels = _checked(embeddings, labels)
    _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    relevant = counts[index] - 1
    if not relevant.any():
        raise ValueError("labels: no class has two members")
    measure = partial(_average_precision, int(relevant.max()))
    return float(np.mean(_over_blocks(measure, embeddings, labels, block_size)[relevant > 0]))


def nmi(
    embeddings: ArrayLike, labels: ArrayLike, *, clusters: int | None = None, seed: int = 0
) -> float:
    """Returns the normalised mutual information of the labels and a k-means clustering.

    ``2 I(labels; clusters) / (H(labels) + H(clusters))``, by scikit-learn, k-means++ once.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      clusters: their number; by default, that of the classes.
      seed: of the clustering.

    Raises:
      ValueError: as :func:`recall_at_k`; or there are fewer examples than clusters.
    """
    from sklearn.cluster import KMeans  # takes a second, and a training needs neither
    from sklearn.metrics import normalized_mutual_info_score

    embeddings, labels = _checked(embeddings, labels)
    clusters = len(np.unique(labels)) if clusters is None else clusters
    if not 1 <= clusters <= len(labels):
        raise ValueError(f"clusters: got {clusters}, wanted 1 to {len(labels)}, the examples")
    once: Any = 1  # the default is a word, which is all that a type checker knows
    found = KMeans(clusters, n_init=once, random_state=seed).fit_predict(embeddings)
    return float(normalized_mutual_info_score(labels, found))


def _checked(embeddings: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    vectors, classes = np.asarray(embeddings, np.float32), np.asarray(labels)
    chex.assert_rank(vectors, 2)
    chex.assert_shape(classes, (len(vectors),))
    if len(vectors) < 2:
        raise ValueError(f"embeddings: got shape {vectors.shape}, wanted [n, d] with n > 1")
    if not np.isfinite(vectors).all():
        rows = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        raise ValueError(f"embeddings: {len(rows)} are not finite, the first is {rows[0]}")
    return vectors, classes


def _over_blocks(
    measure: Callable, embeddings: ArrayLike, labels: ArrayLike, block_size: int
) -> np.ndarray:
    """Returns ``measure(distances, own class or not, itself or not)`` for every query."""
    vectors, classes = _checked(embeddings, labels)
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    vectors = _centred(vectors)
    classes = np.unique(classes, return_inverse=True)[1].astype(np.int32)
    half_squares = np.sum(np.square(vectors), axis=1) / 2

    @jax.jit
    def block(vectors, half_squares, classes, queries):
        products = jnp.dot(vectors[queries], vectors.T, precision=jax.lax.Precision.HIGHEST)
        itself = jnp.arange(len(vectors)) == queries[:, None]
        own = (classes == classes[queries][:, None]) & ~itself
        return measure(jnp.where(itself, jnp.inf, half_squares - products), own)

    arrays = [jnp.asarray(array) for array in (vectors, half_squares, classes)]
    size = min(block_size, len(vectors))
    results = []
    for start in range(0, len(vectors), size):
        queries = np.minimum(np.arange(start, start + size), len(vectors) - 1)
        results.append(block(*arrays, queries))
    return np.concatenate([np.asarray(result) for result in results])[: len(vectors)]


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors from the one nearest to their mean.

    A common shift changes no distance, and keeps the products' rounding small; that of an example,
    unlike the mean's, leaves whole numbers whole, and so ties.
    """
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    away = np.einsum("nd,nd->n", vectors - mean, vectors - mean)
    return vectors - vectors[np.argmin(away)]


def _rank_of_own_class(distances: jax.Array, own: jax.Array) -> jax.Array:
    """Returns how many others come before the nearest of the query's class; ``n`` if it has none.

    To count is much faster than to sort.
    """
    nearest = jnp.min(jnp.where(own, distances, jnp.inf), axis=1, keepdims=True)
    numbers = jnp.arange(distances.shape[1])
    first = jnp.min(
        jnp.where(own & (distances == nearest), numbers, len(numbers)), axis=1, keepdims=True
    )
    before = (distances < nearest) | ((distances == nearest) & (numbers < first))
    count = jnp.sum(before, axis=1)
    return jnp.where(jnp.isinf(nearest[:, 0]), len(numbers), count)


def _average_precision(most: int, distances: jax.Array, own: jax.Array) -> jax.Array:
    """Returns each query's average precision at its R, which is ``most`` at most."""
    relevant = jnp.sum(own, axis=1, keepdims=True)
    nearest = jax.lax.top_k(-distances, most)[1]
    ranks = jnp.arange(1, most + 1)
    hits = jnp.take_along_axis(own, nearest, axis=1) & (ranks <= relevant)
    precision = jnp.cumsum(hits, axis=1) / ranks
    return jnp.sum(precision * hits, axis=1) / jnp.maximum(relevant[:, 0], 1)
