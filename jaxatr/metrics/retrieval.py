"""Metrics of an embedding: retrieval among its examples, and agreement of its clusters with labels.

In retrieval, every example is a query against all others, by Euclidean distance. The search is
exhaustive, in single precision, one block of queries at a time. Ties go to the lower index. The
scale of the embeddings does not matter.
"""

from collections.abc import Iterable
from functools import partial

import chex
import jax
import numpy as np
from numpy.typing import ArrayLike

from jaxatr import search
from jaxatr.extras import extra
from jaxatr.typing import Bool


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
    hits = _hits(embeddings, labels, max(ks, default=1), block_size)
    return {k: float(np.mean(hits[:, :k].any(axis=1))) for k in ks}


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
    ranks = np.arange(1, most + 1)
    hits = _hits(embeddings, labels, most, block_size) & (ranks <= relevant[:, None])
    precisions = np.cumsum(hits, axis=1) / ranks
    averages = np.sum(precisions * hits, axis=1)[relevant > 0] / relevant[relevant > 0]
    return float(np.mean(averages))


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
      ImportError: scikit-learn, of the extra ``report``, is not installed.
    """
    # Slow to import, and not needed for training.
    cluster, scores = (
        extra(f"sklearn.{name}", "report", "the mutual information of clusters")
        for name in ("cluster", "metrics")
    )
    embeddings, labels = _checked(embeddings, labels)
    clusters = len(np.unique(labels)) if clusters is None else clusters
    if not 1 <= clusters <= len(labels):
        raise ValueError(f"clusters: got {clusters}, wanted 1 to {len(labels)}, the examples")
    # In double precision, because scikit-learn expands distances into products.
    points = embeddings.astype(np.float64)
    found = cluster.KMeans(clusters, n_init=1, random_state=seed).fit_predict(points)
    return float(scores.normalized_mutual_info_score(labels, found))


def _checked(embeddings: ArrayLike, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns the embeddings, scaled to values within [-1, 1], and the labels."""
    vectors, classes = np.asarray(embeddings, np.float64), np.asarray(labels)
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
    return np.ldexp(vectors, -np.frexp(largest)[1]).astype(np.float32), classes


def _hits(
    embeddings: ArrayLike, labels: ArrayLike, most: int, block_size: int
) -> Bool[np.ndarray, "n k"]:
    """Tells which of each example's nearest others, at most ``most`` of them, are of its class."""
    vectors, classes = _checked(embeddings, labels)
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    count = len(vectors)
    most, size = min(most, count - 1), min(block_size, count)
    prepared = _prepare(vectors)
    found = []
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        found.append(np.asarray(_block(prepared, vectors[rows], rows, most)))
    return classes[np.concatenate(found)[:count]] == classes[:, None]


_prepare = jax.jit(search.prepare)


@partial(jax.jit, static_argnums=3)  # not a closure, which would be compiled at every call
def _block(prepared: search.Points, queries: jax.Array, rows: jax.Array, most: int) -> jax.Array:
    return search.nearest(prepared, queries, most, rows)[1]
