"""A gallery of training examples: kept small, and searched class by class.

The examples are kept in float16, and searched in float32 on the device. They are in the order of
their classes, so that the nearest of a class is the largest of neighbouring products. No larger
array is ever made than the examples, and the products of them all with one block of queries. A
large gallery is searched in two stages (:mod:`~jaxatr.openset.reranking`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset import reranking
from jaxatr.openset.elsewhere import Elsewhere
from jaxatr.openset.inputs import known_labels
from jaxatr.openset.reranking import Index
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

BLOCK = 256

Model = TypeVar("Model")

LEAST = 1e-6
"""Distance that counts as 0, which has no logarithm."""


class Gallery(NamedTuple):
    """Examples to search among.

    Attributes:
      examples: ``[n, d]``, float16.
      half_squares: ``[n]``, half their squared lengths.
      labels: ``[n]``, their classes, ascending.
      index: of a large gallery, for a search in two stages, or where else the examples are; None:
        all examples are compared.
    """

    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    index: Index | Elsewhere | None = None


class Projection(NamedTuple):
    """A linear map to fewer numbers, ``(x - mean) @ axes``.

    Attributes:
      mean: ``[d]``.
      axes: ``[d, m]``.
    """

    mean: Float[np.ndarray, " d"]
    axes: Float[np.ndarray, "d m"]

    def __call__(self, x: Shaped[np.ndarray, "... d"]) -> Float[np.ndarray, "... m"]:
        """Projects the last axis, in float32."""
        x, mean, axes = (np.asarray(array, np.float32) for array in (x, self.mean, self.axes))
        return (x - mean) @ axes


def build(rows: Shaped[np.ndarray, "n d"], labels: Int[ArrayLike, " n"], classes: int) -> Gallery:
    """Lays examples out for :func:`class_distances`.

    Args:
      rows: ``[n, d]``, within float16's range of ±65504.
      labels: ``[n]``, their classes.
      classes: k; at least two of them must occur, or there is no other class to be nearer to.

    Raises:
      ValueError: there are none, a value is not finite in float16, a label is of no known class, or
        all are of one class.
    """
    labels = known_labels(labels, len(rows), classes)
    with np.errstate(over="ignore"):  # told below
        examples = rows.astype(np.float16)
    if not rows.size or not np.isfinite(examples).all():
        raise ValueError("examples: got none, or one that float16 cannot hold, wanted finite ones")
    if labels.min() == labels.max():
        raise ValueError(f"labels: got class {labels[0]} only, wanted two or more")
    order = np.argsort(labels, kind="stable")
    examples, labels = examples[order], labels[order].astype(np.int32)
    half_squares = np.einsum("nd,nd->n", examples, examples, dtype=np.float32) / 2
    return Gallery(examples, half_squares, labels)


def directions(
    rows: Shaped[np.ndarray, "n d"], labels: Int[ArrayLike, " n"], classes: int
) -> Gallery:
    """Lays examples of length 1 out for :func:`cosines`; those that are all 0 are left out.

    Args:
      rows: ``[n, d]``, of any length.
      labels: ``[n]``, their classes.
      classes: k.

    Raises:
      ValueError: as :func:`build`.
    """
    kept = np.any(rows != 0, axis=1)
    return build(unit(rows[kept]), np.asarray(labels)[kept], classes)


def extended(
    gallery: Gallery, rows: Shaped[np.ndarray, "m d"], labels: Int[ArrayLike, " m"]
) -> Gallery:
    """Adds examples to a gallery, in the place of their classes.

    Args:
      gallery: of :func:`build` or :func:`directions`.
      rows: ``[m, d]``, laid out as its examples are.
      labels: ``[m]``, their classes.

    Raises:
      ValueError: a value is not finite in float16.
    """
    with np.errstate(over="ignore"):  # told below
        added = np.asarray(rows).astype(np.float16)
    if not np.isfinite(added).all():
        raise ValueError("examples: got one that float16 cannot hold, wanted finite ones")
    half_squares = np.einsum("nd,nd->n", added, added, dtype=np.float32) / 2
    every = np.concatenate([np.asarray(gallery.labels), np.asarray(labels, np.int32)])
    order = np.argsort(every, kind="stable")
    return Gallery(
        np.concatenate([np.asarray(gallery.examples), added])[order],
        np.concatenate([np.asarray(gallery.half_squares), half_squares])[order],
        every[order],
    )


def with_examples(
    model: Any, rows: Shaped[np.ndarray, "m d"], labels: Int[ArrayLike, " m"], classes: int
) -> Any:
    """Adds examples to a score's model that has the fields of a gallery, and ``classes``.

    Rows that are all 0 are left out: they have no direction to compare.

    Args:
      model: a named tuple.
      rows: as of :func:`extended`.
      labels: as there.
      classes: k, with further ones.

    Raises:
      ValueError: as :func:`extended`.
    """
    kept = np.any(rows != 0, axis=1)
    own = Gallery(model.examples, model.half_squares, model.labels)
    found = extended(own, rows[kept], np.asarray(labels)[kept])
    return model._replace(**found._asdict(), classes=np.array(classes))


def unit(rows: Shaped[ArrayLike, "... d"]) -> Any:
    """Scales rows to length 1, in float32; one that is all 0 stays so."""
    xp = numpy_of(rows)
    rows = xp.asarray(rows, np.float32)
    lengths = xp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / xp.where(lengths > 0, lengths, 1)


_unit = jax.jit(unit)


def numpy_of(array: Any) -> Any:
    """Returns the library of an array, for what is computed in NumPy, or traced for a graph."""
    return jnp if isinstance(array, jax.Array) else np


def in_double(array: Any) -> Any:
    """Converts an array of NumPy to float64; one of JAX, which has none, stays as it is."""
    return array if isinstance(array, jax.Array) else np.asarray(array, np.float64)


def ready(model: Model) -> Model:
    """Makes a fitted model ready for many searches.

    Its float16 arrays are put on the device in float32, and a gallery gets an index where a search
    in two stages pays.

    Args:
      model: a named tuple of arrays; with the fields of a :class:`Gallery` and ``classes``, a
        gallery, of which each query comes in ``forms`` forms if it says so. Another is left alone.
    """

    def put(leaf: Any) -> Any:
        half = getattr(leaf, "dtype", None) == np.float16
        return jnp.asarray(leaf).astype(jnp.float32) if half else leaf

    found: Any = jax.tree.map(put, model)
    if is_gallery(found) and found.index is None:
        if reranking.pays(np.shape(found.examples), getattr(found, "forms", 1)):
            arrays = found.examples, found.half_squares, found.labels
            found = found._replace(index=reranking.index(*arrays, int(np.asarray(found.classes))))
    return found


def is_gallery(model: Any) -> bool:
    """Whether a fitted model has the fields of a :class:`Gallery`, and ``classes``."""
    return {*Gallery._fields, "classes"} <= set(getattr(model, "_fields", ()))


def class_distances(
    gallery: Gallery,
    queries: Float[ArrayLike, "b d"],
    classes: int,
    *,
    block_size: int = BLOCK,
) -> Float[np.ndarray, "b k"]:
    """Computes the distance of each query to the nearest example of each class.

    From products, so exact to about 5e-4 of the vectors' lengths, which is as fine as float16 is.

    Args:
      gallery: of :func:`build`.
      queries: ``[b, d]``.
      classes: k; the distance to a class without an example is infinite.
      block_size: queries at a time.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    rows = np.asarray(queries, np.float32)
    squares = np.square(rows).sum(axis=1, keepdims=True)
    beyond = proximities(gallery, rows[:, None], classes, (0,), block_size)
    return np.sqrt(np.maximum(squares - 2 * beyond, 0))


def traced_distances(gallery: Gallery, queries: Array, classes: int) -> Float[Array, "b k"]:
    """Computes :func:`class_distances` in one block, for a graph.

    Args:
      gallery: its labels are an array of NumPy.
      queries: ``[b, d]``; b may be a symbol.
      classes: k.
    """
    beyond = _traced(gallery, queries[:, None], classes, (0,))
    squares = jnp.sum(jnp.square(queries), axis=1, keepdims=True)
    return jnp.sqrt(jnp.maximum(squares - 2 * beyond, 0))


def _traced(
    gallery: Gallery, queries: Array, classes: int, estimated: tuple[int, ...]
) -> Float[Array, "b k"]:
    examples = jnp.asarray(gallery.examples).astype(jnp.float32)
    if isinstance(gallery.index, Elsewhere):
        raise ValueError("a gallery whose examples are elsewhere cannot be in a graph")
    if gallery.index is not None:
        return reranking.nearest(examples, gallery.index, queries, estimated)
    half_squares = jnp.asarray(gallery.half_squares)
    return _whole(examples, half_squares, queries, ends=_ends(gallery.labels, classes))


def _ends(labels: Int[ArrayLike, " n"], classes: int) -> tuple[int, ...]:
    """Finds where the examples of each class begin, and where the last ones end."""
    return tuple(np.searchsorted(np.asarray(labels), np.arange(classes + 1)).tolist())


def cosines(
    gallery: Gallery,
    queries: Float[ArrayLike, "b d"] | Float[ArrayLike, "b s d"],
    classes: int,
    *,
    estimated: tuple[int, ...] = (0,),
    block_size: int = BLOCK,
) -> Float[np.ndarray, "b k"]:
    """Computes the largest cosine of each query to an example of each class, in float64.

    Args:
      gallery: of :func:`directions`.
      queries: ``[b, d]``, of any length; the cosine of one that is all 0 is 0, as near as float16.
        ``[b, s, d]``: each in s forms, of which the one with the largest cosine counts.
      classes: k; the cosine to a class without an example is minus infinity.
      estimated: the forms by which a search in two stages estimates.
      block_size: queries at a time, in all their forms.

    Raises:
      ValueError: as :func:`class_distances`.
    """
    rows = np.asarray(_unit(jnp.asarray(queries)))
    rows = rows[:, None] if rows.ndim == 2 else rows
    return 0.5 + proximities(gallery, rows, classes, estimated, block_size).astype(np.float64)


def proximities(
    gallery: Gallery,
    queries: Float[ArrayLike, "b s d"],
    classes: int,
    estimated: tuple[int, ...],
    block_size: int,
) -> Float[np.ndarray, "b k"]:
    """Computes the largest q·x − x²/2 over the forms q and a class's examples x.

    Args:
      gallery: of :func:`build` or :func:`directions`.
      queries: ``[b, s, d]``, each in s forms.
      classes: k; minus infinity for a class without an example.
      estimated: the forms by which a search in two stages estimates.
      block_size: queries at a time.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    search: Callable[[Any], Any]
    queries = np.asarray(queries, np.float32)
    examples = jnp.asarray(gallery.examples, jnp.float32)
    if isinstance(gallery.index, Elsewhere):
        search = partial(gallery.index.proximities, classes=classes, estimated=estimated)
    elif gallery.index is None:
        half_squares = jnp.asarray(gallery.half_squares)
        search = partial(_whole, examples, half_squares, ends=_ends(gallery.labels, classes))
    else:
        search = partial(_reranked, examples, gallery.index, estimated=estimated)
    found = [np.zeros((0, classes), np.float32)]
    for start in range(0, len(queries), block_size):
        block = queries[start : start + block_size]
        # Filled up to a power of two: few sizes of a block, each of which is compiled once.
        size = min(block_size, 1 << (len(block) - 1).bit_length())
        if len(block) < size:
            block = np.pad(block, [(0, size - len(block)), (0, 0), (0, 0)])
        found.append(np.asarray(search(block))[: len(queries) - start])
    return np.concatenate(found)


@partial(jax.jit, static_argnames="ends")
def _whole(examples: Array, half_squares: Array, queries: Array, ends: tuple[int, ...]) -> Array:
    b, forms, d = queries.shape
    # The longer side first: XLA's product of a CPU takes half the time of the transposed one.
    products = jax.lax.dot_general(
        examples,
        queries.reshape(b * forms, d),
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
    )
    products = products.reshape(examples.shape[0], b, forms).max(axis=2)
    beyond = products - half_squares[:, None]
    nearest = [
        jnp.max(beyond[start:end], axis=0)
        if start < end
        else jnp.full_like(beyond, -jnp.inf, shape=beyond.shape[1:])
        for start, end in zip(ends[:-1], ends[1:], strict=True)
    ]
    return jnp.stack(nearest, axis=1)


_reranked = jax.jit(reranking.nearest, static_argnames="estimated")


def traced_cosines(
    gallery: Gallery, queries: Array, classes: int, estimated: tuple[int, ...] = (0,)
) -> Float[Array, "b k"]:
    """Computes :func:`cosines` for a graph, in float32; as :func:`traced_distances`."""
    rows = unit(queries)
    rows = rows[:, None] if rows.ndim == 2 else rows
    return 0.5 + _traced(gallery, rows, classes, estimated)


def two_nearest(distances: Float[ArrayLike, "b k"]) -> tuple[Any, Any]:
    """Returns the distances to the nearest and to the next class, each ``[b]``, in float64."""
    nearest = numpy_of(distances).sort(in_double(distances), axis=1)[:, :2]
    return nearest[:, 0], nearest[:, 1]


def pca(rows: Shaped[np.ndarray, "n d"], dimensions: int) -> Projection:
    """Finds the directions in which rows vary most.

    Args:
      rows: ``[n, d]``.
      dimensions: m, how many of them.

    Raises:
      ValueError: ``dimensions`` is out of range.
    """
    _check_dimensions(dimensions, rows)
    mean = rows.mean(axis=0, dtype=np.float64)
    centred = np.asarray(rows, np.float64) - mean
    _, vectors = np.linalg.eigh(centred.T @ centred)  # ascending
    return Projection(mean, vectors[:, ::-1][:, :dimensions])


def random_projection(rows: Shaped[np.ndarray, "n d"], dimensions: int, *, seed: int) -> Projection:
    """Draws directions that keep squared distances in the mean (Johnson and Lindenstrauss 1984).

    Args:
      rows: ``[n, d]``, of which the width alone counts.
      dimensions: m, how many of them.
      seed: of the draw.

    Raises:
      ValueError: ``dimensions`` is out of range.
    """
    width = _check_dimensions(dimensions, rows)
    axes = np.random.default_rng(seed).normal(size=(width, dimensions)) / np.sqrt(dimensions)
    return Projection(np.zeros(width), axes)


def _check_dimensions(dimensions: int, rows: np.ndarray) -> int:
    if not 1 <= dimensions <= rows.shape[1]:
        raise ValueError(f"dimensions: got {dimensions}, wanted 1 to {rows.shape[1]}, the rows'")
    return rows.shape[1]


def sample(labels: Int[np.ndarray, " n"], most: int, *, seed: int = 0) -> Int[np.ndarray, " m"]:
    """Draws at most so many examples, evenly from all classes; ascending indices.

    Args:
      labels: ``[n]``, their classes.
      most: m at most, at least one of each class.
      seed: of the draw.
    """
    if len(labels) <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    rank = np.empty(len(labels), int)  # of an example among those of its class, as drawn
    for label in np.unique(labels):
        own = order[labels[order] == label]
        rank[own] = np.arange(len(own))
    kept = np.lexsort((order.argsort(), rank))[: max(most, len(np.unique(labels)))]
    return np.sort(kept)


def coreset(
    rows: Shaped[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    size: int,
    *,
    dimensions: int = 128,
    seed: int = 0,
) -> Int[np.ndarray, " m"]:
    """Chooses examples such that no other is far from one of them; ascending indices.

    Greedy k-centre, as PatchCore has it (Roth et al. 2022, algorithm 1): the next one is that which
    is farthest from the chosen ones, by distances of random projections. It begins with the example
    of each class that is nearest to the class's mean.

    Args:
      rows: ``[n, d]``.
      labels: ``[n]``, their classes.
      size: m, at least one of each class.
      dimensions: of the projections, if the rows have more.
      seed: of the projection.

    Raises:
      ValueError: ``size`` is out of range.
    """
    names = np.unique(labels)
    if not len(names) <= size <= len(rows):
        raise ValueError(f"size: got {size}, wanted {len(names)}, the classes, to {len(rows)}")
    points = np.asarray(rows, np.float32)
    if rows.shape[1] > dimensions:
        points = random_projection(rows, dimensions, seed=seed)(rows)
    chosen = []
    for name in names:
        own = np.flatnonzero(labels == name)
        mean = points[own].mean(axis=0)
        chosen.append(own[np.argmin(np.square(points[own] - mean).sum(axis=1))])
    away = np.full(len(points), np.inf)
    for place in range(size):
        if place == len(chosen):
            chosen.append(int(np.argmax(away)))
        index = chosen[place]
        away = np.minimum(away, np.square(points - points[index]).sum(axis=1))
        away[chosen] = -1  # none comes twice
    return np.sort(np.array(chosen))
