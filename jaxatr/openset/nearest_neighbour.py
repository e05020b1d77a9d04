r"""Distance to the k-th nearest training example (Sun et al. 2022, "Deep nearest neighbors").

The score is :math:`-\lVert z - z_{(k)} \rVert_2` for features z scaled to length 1. Searches are
exhaustive.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr import search
from jaxatr.inference import filled_size
from jaxatr.openset import gallery
from jaxatr.openset.inputs import finite
from jaxatr.typing import Array, ArrayLike, Float, Int


class NearestNeighbour(NamedTuple):
    """A fitted model.

    Attributes:
      features: ``[n, d]``, the examples' features, scaled to length 1; in a graph also in 16 or 8
        bits.
      further: ``[m]``, classes of the last m examples, which were added after the fit.
    """

    features: Float[ArrayLike, "n d"]
    further: Int[ArrayLike, " m"] = np.zeros(0, np.int32)

    searched = "features"  # the examples, for jaxatr.openset.graph and gallery.ready


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
    rows, further = np.asarray(model.features), np.asarray(model.further)
    fitted = len(rows) - len(further)
    # One program for many numbers of examples and queries: the last one fills up the rest.
    padded = rows[np.minimum(np.arange(fitted + filled_size(len(further))), len(rows) - 1)]
    queries = unit(model, features)
    count = len(queries)
    queries = np.pad(queries, [(0, filled_size(count) - count), (0, 0)])
    distances, indices = (np.asarray(found)[:count, 0] for found in neighbours(padded, queries, 1))
    place = np.minimum(indices, len(rows) - 1) - fitted
    return distances, np.append(further, -1)[np.maximum(place, -1)]


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
    queries = gallery.unit(jnp.asarray(features))
    return -neighbours(model.features, queries, k, block_size=block_size)[0][:, -1]


def traced_score(
    model: NearestNeighbour, features: Float[ArrayLike, "b d"], *, k: int
) -> Float[Array, " b"]:
    """Computes :func:`score` for a traced graph, without a loop over queries or bit casts."""
    bank: Any = model.features
    unit = gallery.unit(features)
    if isinstance(bank, gallery.Rounded):  # beside the rounding of the rows, what cancels is small
        squares = jnp.asarray(bank.squares)
        found = _least(gallery.products(bank, unit), squares, k)
        exact = gallery.products_at(bank, found, unit[:, None])[:, 0]
        lengths = jnp.sum(jnp.square(unit), axis=1, keepdims=True)
        apart = jnp.maximum(gallery.at(squares, found) - 2 * exact + lengths, 0)
    else:
        found = candidates(bank, unit, k)
        apart = search.squared(gallery.at(jnp.asarray(bank, jnp.float32), found), unit[:, None])
    return -jnp.sqrt(-jax.lax.top_k(-apart, k)[0][:, -1])


def candidates(
    examples: Float[ArrayLike, "n d"], queries: Float[ArrayLike, "b d"], k: int
) -> Int[Array, "b c"]:
    """Returns the k nearest examples of each query and the next ones, as products estimate them."""
    rows = jnp.asarray(examples, jnp.float32)
    products = jnp.dot(rows, queries.T, precision=jax.lax.Precision.HIGHEST).T
    return _least(products, jnp.sum(jnp.square(rows), axis=1), k)


def _least(products: Array, squares: Array, k: int) -> Array:
    count = min(k + search.MARGIN, squares.shape[0])
    return jax.lax.top_k(products - squares[None] / 2, count)[1]


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
    arrays = _filled(examples), jnp.asarray(queries), np.int32(len(examples) - 1)
    return _neighbours(*arrays, k, block_size)


def _filled(examples: Float[ArrayLike, "n d"]) -> Float[ArrayLike, "m d"]:
    """Fills examples of the host up to one of four lengths per octave, for fewer programs.

    The rest is not finite, and therefore never nearer than an example. Where classes are left out
    in turn, each leaves another number of examples.
    """
    if not isinstance(examples, np.ndarray) or not np.issubdtype(examples.dtype, np.floating):
        return examples
    step = max(8, 1 << max(0, len(examples).bit_length() - 3))
    rows = ((0, -len(examples) % step), (0, 0))
    return np.pad(examples, rows, constant_values=np.nan)


@partial(jax.jit, static_argnums=(3, 4))
def _neighbours(
    examples: Array, queries: Array, last: Array, k: int, block_size: int
) -> tuple[Array, Array]:
    prepared = search.prepare(examples)
    distances, indices = _over_blocks(
        lambda block: search.nearest(prepared, block, k), queries, block_size
    )
    return distances, jnp.minimum(indices, last)  # a query that is not finite may find a filling


def _over_blocks(find: Callable[[Array], Any], queries: Array, block_size: int) -> Any:
    """Applies a function of ``[b, d]`` to queries in blocks of equal size."""
    count, width = queries.shape
    blocks = max(1, -(-count // block_size))
    size = -(-count // blocks)
    padded = jnp.pad(queries, [(0, blocks * size - count), (0, 0)])
    found = jax.lax.map(find, padded.reshape(blocks, size, width))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], found)


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
    examples = _filled(examples)
    labels = np.pad(np.asarray(labels), (0, len(examples) - len(labels)))
    return _class_distances(
        examples, jnp.asarray(labels), jnp.asarray(queries), num_classes, block_size
    )


@partial(jax.jit, static_argnums=(3, 4))
def _class_distances(examples, labels, queries, num_classes: int, block_size: int) -> Array:
    prepared = search.prepare(examples)
    count = len(examples)
    numbers = jnp.arange(count, dtype=jnp.int32)[None]
    least_of = jax.vmap(partial(jax.ops.segment_min, segment_ids=labels, num_segments=num_classes))

    def unknown(found: Array, least: Array) -> Array:
        return (least <= found) & jnp.isfinite(least)

    def distances(block: Array) -> Array:
        points, bounds = search.bounds(prepared, block)

        def undecided(state) -> Array:
            found, _, least, trial = state
            return (trial < search.TRIALS) & unknown(found, least).any()

        def try_one(state):
            found, rest, least, trial = state
            here = jnp.where(rest == least[:, labels], numbers, count)
            chosen = least_of(here)
            apart = search.squared(prepared.points[chosen % count], points[:, None])
            found = jnp.where(unknown(found, least), jnp.minimum(found, apart), found)
            rest = jnp.where(numbers == chosen[:, labels], jnp.inf, rest)
            return found, rest, least_of(rest), trial + 1

        def finish(given) -> Array:
            point, found, rest, left = given

            def compare() -> Array:
                apart = search.squared(prepared.points, point[None])
                apart = jnp.where(jnp.isinf(rest), jnp.inf, apart)
                return jnp.minimum(found, jax.ops.segment_min(apart, labels, num_classes))

            return jax.lax.cond(left, compare, lambda: found)

        least = least_of(bounds)
        start = jnp.full_like(least, jnp.inf), bounds, least, 0
        found, rest, least, _ = jax.lax.while_loop(undecided, try_one, start)
        found = jax.lax.map(finish, (points, found, rest, unknown(found, least).any(axis=1)))
        finite = jnp.isfinite(points).all(axis=1, keepdims=True)
        return jnp.where(finite, jnp.ldexp(jnp.sqrt(found), prepared.exponent), jnp.nan)

    return _over_blocks(distances, queries, block_size)


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
