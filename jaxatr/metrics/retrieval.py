"""Metrics of an embedding: retrieval among its examples, and agreement of its clusters with labels.

In retrieval, every example is a query against all others, by Euclidean distance. The search is
exhaustive, in single precision, one block of queries at a time. Ties go to the lower index. The
scale of the embeddings does not matter.
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
    """Computes Recall@K: the share of queries with one of their class among the k nearest.

    This is the definition of the metric-learning literature (after Jégou et al. 2011). A query
    whose class has no other member counts as a miss.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      ks: numbers of neighbours to consider, each at least 1.
      block_size: queries per block; memory use is proportional to ``block_size * n``.

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
    """Computes the mean average precision at R (Musgrave et al. 2020, section 4).

    A query whose class has R other members scores the mean of R values, one for each of the first
    R ranks: the precision at that rank if it holds an example of the class, else 0. Queries whose
    class has no other member are left out.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      block_size: queries per block; memory use is proportional to ``block_size * n``.

    Raises:
      ValueError: there are fewer than two examples, an embedding is not finite, the block size is
        below 1, or no class has two members.

    >>> map_at_r([[0.0], [1.0], [1.5], [9.0]], [0, 0, 1, 1])
    0.5
    """
    embeddings, labels = _checked(embeddings, labels)
    _, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    relevant = counts[index] - 1
    if not relevant.any():
        raise ValueError("labels: no class has two members")
    most = int(relevant.max())
    precisions = _over_blocks(_average_precision, embeddings, labels, block_size, most)
    return float(np.mean(precisions[relevant > 0]))


def nmi(
    embeddings: ArrayLike, labels: ArrayLike, *, clusters: int | None = None, seed: int = 0
) -> float:
    """Computes the normalised mutual information of the labels and a k-means clustering.

    It is ``2 I(labels; clusters) / (H(labels) + H(clusters))``. One run of scikit-learn's k-means,
    started by k-means++, finds the clusters.

    Args:
      embeddings: ``[n, d]``.
      labels: ``[n]``, integers.
      clusters: number of clusters; by default the number of classes.
      seed: seed of the clustering.

    Raises:
      ValueError: there are fewer than two examples, an embedding is not finite, or ``clusters`` is
        below 1 or above the number of examples.
    """
    from sklearn.cluster import KMeans  # slow to import, and not needed for training
    from sklearn.metrics import normalized_mutual_info_score

    embeddings, labels = _checked(embeddings, labels)
    clusters = len(np.unique(labels)) if clusters is None else clusters
    if not 1 <= clusters <= len(labels):
        raise ValueError(f"clusters: got {clusters}, wanted 1 to {len(labels)}, the examples")
    once: Any = 1  # the stubs infer str from the default
    found = KMeans(clusters, n_init=once, random_state=seed).fit_predict(embeddings)
    return float(normalized_mutual_info_score(labels, found))


def _checked(embeddings: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings, scaled to values within [-1, 1], and the labels."""
    vectors, classes = np.asarray(embeddings, np.float32), np.asarray(labels)
    chex.assert_rank(vectors, 2)
    chex.assert_shape(classes, (len(vectors),))
    if len(vectors) < 2:
        raise ValueError(f"embeddings: got shape {vectors.shape}, wanted [n, d] with n > 1")
    if not np.isfinite(vectors).all():
        rows = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        raise ValueError(f"embeddings: {len(rows)} are not finite, the first is {rows[0]}")
    # No metric depends on the scale. A power of two changes no digit, and squares of values up to
    # 1 do not overflow; unscaled, they do from 1e19, and those below 1e-23 are 0.
    largest = np.max(np.abs(vectors), initial=0)
    return np.ldexp(vectors, -np.frexp(largest)[1]), classes


def _over_blocks(
    measure: Callable, embeddings: ArrayLike, labels: ArrayLike, block_size: int, *first: int
) -> np.ndarray:
    """Evaluates ``measure(*first, distances, own)`` for every query; ``own`` marks its class."""
    vectors, classes = _checked(embeddings, labels)
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    vectors = _centred(vectors)
    classes = np.unique(classes, return_inverse=True)[1].astype(np.int32)
    half_squares = np.sum(np.square(vectors), axis=1) / 2

    arrays = [jnp.asarray(array) for array in (vectors, half_squares, classes)]
    size = min(block_size, len(vectors))
    results = []
    for start in range(0, len(vectors), size):
        queries = np.minimum(np.arange(start, start + size), len(vectors) - 1)
        results.append(_block(measure, first, *arrays, queries))
    return np.concatenate([np.asarray(result) for result in results])[: len(vectors)]


@partial(jax.jit, static_argnums=(0, 1))  # not a closure, which would be compiled at every call
def _block(
    measure: Callable,
    first: tuple[int, ...],
    vectors: jax.Array,
    half_squares: jax.Array,
    classes: jax.Array,
    queries: jax.Array,
) -> jax.Array:
    products = jnp.dot(vectors[queries], vectors.T, precision=jax.lax.Precision.HIGHEST)
    itself = jnp.arange(len(vectors)) == queries[:, None]
    own = (classes == classes[queries][:, None]) & ~itself
    return measure(*first, jnp.where(itself, jnp.inf, half_squares - products), own)


def _centred(vectors: np.ndarray) -> np.ndarray:
    """Returns the vectors relative to the one nearest to their mean.

    A common shift does not change distances, and keeps the rounding errors of products small.
    Shifting by an example instead of the mean keeps integers integers, and ties ties.
    """
    mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    away = np.einsum("nd,nd->n", vectors - mean, vectors - mean)
    return vectors - vectors[np.argmin(away)]


def _rank_of_own_class(distances: jax.Array, own: jax.Array) -> jax.Array:
    """Counts the examples before the first of the query's class; 2^31 - 1 if there is none.

    Counting is much faster than sorting.
    """
    nearest = jnp.min(jnp.where(own, distances, jnp.inf), axis=1, keepdims=True)
    numbers = jnp.arange(distances.shape[1])
    first = jnp.min(
        jnp.where(own & (distances == nearest), numbers, len(numbers)), axis=1, keepdims=True
    )
    before = (distances < nearest) | ((distances == nearest) & (numbers < first))
    count = jnp.sum(before, axis=1)
    return jnp.where(jnp.isinf(nearest[:, 0]), jnp.iinfo(jnp.int32).max, count)


def _average_precision(most: int, distances: jax.Array, own: jax.Array) -> jax.Array:
    """Computes each query's average precision at its R, which is at most ``most``."""
    relevant = jnp.sum(own, axis=1, keepdims=True)
    nearest = jax.lax.top_k(-distances, most)[1]
    ranks = jnp.arange(1, most + 1)
    hits = jnp.take_along_axis(own, nearest, axis=1) & (ranks <= relevant)
    precision = jnp.cumsum(hits, axis=1) / ranks
    return jnp.sum(precision * hits, axis=1) / jnp.maximum(relevant[:, 0], 1)
