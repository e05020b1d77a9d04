r"""Distance to the k-th nearest training example (Sun et al. 2022, "Deep nearest neighbors").

The score is :math:`-\lVert z - z_{(k)} \rVert_2` for features z scaled to length 1. Searches are
exhaustive.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import gallery
from jaxatr.openset.inputs import finite
from jaxatr.typing import Array, ArrayLike, Float, Int


class NearestNeighbour(NamedTuple):
    """A fitted model.

    Attributes:
      features: ``[n, d]``, the examples' features, scaled to length 1.
      further: ``[m]``, classes of the last m examples, which were added after the fit.
    """

    features: Float[ArrayLike, "n d"]
    further: Int[ArrayLike, " m"] = np.zeros(0, np.int32)


def fit(features: Float[ArrayLike, "n d"]) -> NearestNeighbour:
    """Stores features scaled to length 1, in float32; a row that is all 0 stays 0.

    Args:
      features: ``[n, d]``, of training examples of the known classes.

    Raises:
      ValueError: a feature is not finite.
    """
    return NearestNeighbour(_unit(finite("features", features)).astype(np.float32))


def _unit(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def unit(model: NearestNeighbour, features: Float[ArrayLike, "n d"]) -> Float[np.ndarray, "n d"]:
    """Scales features to length 1, in the model's type."""
    return _unit(np.asarray(features, np.float64)).astype(np.asarray(model.features).dtype)


def with_examples(
    model: NearestNeighbour,
    rows: Float[np.ndarray, "m d"],
    labels: Int[np.ndarray, " m"],
    classes: int,
) -> NearestNeighbour:
    """Returns a model with examples added.

    Args:
      model: from :func:`fit`.
      rows: ``[m, d]``, scaled by :func:`unit`.
      labels: ``[m]``, their classes.
      classes: number of all classes; unused.
    """
    del classes
    return NearestNeighbour(
        np.concatenate([np.asarray(model.features), rows]),
        np.concatenate([np.asarray(model.further), labels]).astype(np.int32),
    )


def nearest(
    model: NearestNeighbour, features: Float[ArrayLike, "b d"]
) -> tuple[Float[np.ndarray, " b"], Int[np.ndarray, " b"]]:
    """Finds the nearest example of each query.

    Args:
      model: a model with added examples.
      features: ``[b, d]``.

    Returns:
      ``(distances, labels)``, ``[b]`` each: the distance to the nearest example, and its class; -1
      for an example of the fit, whose class is not stored.
    """
    count = len(np.asarray(model.further))
    fitted = -np.asarray(score(NearestNeighbour(model.features[:-count]), features, k=1))
    # One program for many numbers of examples: the last one stands for those up to a power of two.
    rows = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1) - count
    distances, indices = neighbours(np.asarray(model.features)[rows], unit(model, features), 1)
    added = np.asarray(distances)[:, 0]
    labels = np.asarray(model.further)[np.minimum(np.asarray(indices)[:, 0], count - 1)]
    return np.minimum(fitted, added), np.where(added < fitted, labels, -1)


def score(
    model: NearestNeighbour,
    features: Float[ArrayLike, "b d"],
    *,
    k: int = 50,
    block_size: int = 256,
) -> Float[Array, " b"]:
    """Computes minus the distance to the k-th nearest training example.

    Args:
      model: from :func:`fit`.
      features: ``[b, d]``.
      k: rank of the neighbour; the paper uses 50 for CIFAR-10, and more for more classes.
      block_size: number of queries per block; memory is proportional to ``block_size * n``.

    Raises:
      ValueError: ``k`` or ``block_size`` is out of range.
    """
    if not 1 <= k <= len(model.features):
        raise ValueError(f"k: got {k}, wanted 1 to {len(model.features)}, the training examples")
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    return -_distances(jnp.asarray(model.features), jnp.asarray(features), k, block_size)


def traced_score(
    model: NearestNeighbour, features: Float[ArrayLike, "b d"], *, k: int
) -> Float[Array, " b"]:
    """Computes :func:`score` for a traced graph, without a loop over queries or bit casts."""
    bank, unit = jnp.asarray(model.features), gallery.unit(features)
    half_squares = jnp.sum(jnp.square(bank), axis=1) / 2
    products = jnp.dot(bank, unit.T, precision=jax.lax.Precision.HIGHEST).T
    _, found = jax.lax.top_k(products - half_squares, k)
    return -jnp.linalg.norm(bank[found[:, k - 1]] - unit, axis=1)


@partial(jax.jit, static_argnums=(2, 3))
def _distances(bank: Array, queries: Array, k: int, block_size: int) -> Array:
    half_squares = jnp.sum(jnp.square(bank), axis=1) / 2  # 1/2, or 0 for a row that is all 0

    def distance(query: Array) -> Array:
        query = gallery.unit(query)
        products = jnp.dot(bank, query, precision=jax.lax.Precision.HIGHEST)
        neighbour = bank[kth_largest(products - half_squares, k)]
        # A distance of 0 would be 3e-4 if it were computed from the product.
        return jnp.linalg.norm(neighbour - query)

    return jax.lax.map(distance, queries.astype(bank.dtype), batch_size=block_size)


def neighbours(
    examples: Float[ArrayLike, "n d"],
    queries: Float[ArrayLike, "b d"],
    k: int,
    *,
    block_size: int = 256,
) -> tuple[Float[Array, "b k"], Int[Array, "b k"]]:
    """Finds the distances and indices of the k nearest examples of each query, nearest first.

    Vectors are not scaled. Ties go to the lower index.

    Args:
      examples: ``[n, d]``.
      queries: ``[b, d]``.
      k: number of neighbours.
      block_size: number of queries per block; memory is proportional to ``block_size * n``.

    Raises:
      ValueError: ``k`` or ``block_size`` is out of range.

    >>> distances, indices = neighbours(jnp.array([[0.0], [3.0]]), jnp.array([[2.0]]), 2)
    >>> distances.tolist(), indices.tolist()
    ([[1.0, 2.0]], [[1, 0]])
    """
    if not 1 <= k <= len(examples):
        raise ValueError(f"k: got {k}, wanted 1 to {len(examples)}, the examples")
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    return _neighbours(jnp.asarray(examples), jnp.asarray(queries), k, block_size)


@partial(jax.jit, static_argnums=(2, 3))
def _neighbours(examples: Array, queries: Array, k: int, block_size: int) -> tuple[Array, Array]:
    origin, examples, half_squares = _centred(examples)

    def search(query: Array) -> tuple[Array, Array]:
        query = query - origin
        products = jnp.dot(examples, query, precision=jax.lax.Precision.HIGHEST)
        _, found = jax.lax.top_k(products - half_squares, k)
        return jnp.linalg.norm(examples[found] - query, axis=1), found

    return jax.lax.map(search, queries.astype(examples.dtype), batch_size=block_size)


def _centred(examples: Array) -> tuple[Array, Array, Array]:
    """Returns the example nearest to the mean, all relative to it, and half their squared lengths.

    Distances do not depend on the origin, but the rounding errors of inner products do. An example
    as the origin, instead of the mean, keeps integers integers, and ties ties.
    """
    examples = examples.astype(jnp.promote_types(examples.dtype, jnp.float32))
    away = jnp.sum(jnp.square(examples - jnp.mean(examples, axis=0)), axis=1)
    origin = examples[jnp.argmin(away)]
    examples = examples - origin
    return origin, examples, jnp.sum(jnp.square(examples), axis=1) / 2


def class_distances(
    examples: Float[ArrayLike, "n d"],
    labels: Int[ArrayLike, " n"],
    queries: Float[ArrayLike, "b d"],
    num_classes: int,
    *,
    block_size: int = 256,
) -> Float[Array, "b k"]:
    """Computes the distance of each query to the nearest example of each class.

    The negated distances serve as logits of the classes: the largest one is the query's score, and
    belongs to the nearest class. Vectors are not scaled.

    Args:
      examples: ``[n, d]``, embeddings of the training examples.
      labels: ``[n]``, their classes, in ``[0, k)``.
      queries: ``[b, d]``.
      num_classes: k; the distance to a class without an example is infinite.
      block_size: number of queries per block; memory is proportional to ``block_size * n``.

    Raises:
      ValueError: ``block_size`` is below 1.

    >>> class_distances(jnp.array([[0.0], [3.0]]), jnp.array([0, 1]), jnp.array([[1.0]]), 2)
    Array([[1., 2.]], dtype=float32)
    """
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    arrays = (jnp.asarray(array) for array in (examples, labels, queries))
    return _class_distances(*arrays, num_classes, block_size)


@partial(jax.jit, static_argnums=(3, 4))
def _class_distances(examples, labels, queries, num_classes: int, block_size: int) -> Array:
    origin, examples, half_squares = _centred(examples)
    numbers = jnp.arange(len(examples))

    def distances(query: Array) -> Array:
        query = query - origin
        products = jnp.dot(examples, query, precision=jax.lax.Precision.HIGHEST)
        beyond = half_squares - products  # half the squared distance, up to the query's own term
        least = jax.ops.segment_min(beyond, labels, num_classes)
        candidates = jnp.where(beyond == least[labels], numbers, len(examples))
        first = jax.ops.segment_min(candidates, labels, num_classes)
        found = jnp.linalg.norm(examples[first % len(examples)] - query, axis=1)
        return jnp.where(first < len(examples), found, jnp.inf)

    return jax.lax.map(distances, queries.astype(examples.dtype), batch_size=block_size)


def kth_largest(values: Float[Array, " n"], k: int | Int[Array, ""]) -> Int[Array, ""]:
    """Finds the index of the k-th largest value, by bisection over the bits of float32.

    On CPUs this takes a tenth of the time of ``jax.lax.top_k``, which sorts.
    """
    bits = jax.lax.bitcast_convert_type(values, jnp.uint32)
    sign = jnp.uint32(1 << 31)
    ordered = jnp.where(bits < sign, bits | sign, ~bits)  # integers in the order of the floats

    def halve(_, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = high - (high - low) // 2
        enough = jnp.sum(ordered >= middle) >= k
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle - 1)

    found, _ = jax.lax.fori_loop(0, 32, halve, (jnp.min(ordered), jnp.max(ordered)))
    return jnp.argmax(ordered == found)
