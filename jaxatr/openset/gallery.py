"""A gallery of training examples, searched for the nearest example of each class.

Examples are stored in float16 and searched in float32 on the device. They are sorted by class, so
that the products of each class are contiguous. The largest arrays are the examples and their
products with one block of queries. A large gallery is searched in two stages
(:mod:`~jaxatr.openset.reranking`).
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

_CLASSES, _ROWS = 8, 16  # least room for classes, and for examples of a class

LEAST = 1e-6
"""Lower bound of distances whose logarithm is taken."""


class Gallery(NamedTuple):
    """Examples to search.

    Attributes:
      examples: ``[n, d]``, float16.
      half_squares: ``[n]``, half their squared lengths.
      labels: ``[n]``, their classes, ascending.
      index: an index for a search in two stages, or a search in the processes that hold the
        examples; None to compare every example.
    """

    examples: Shaped[ArrayLike, "n d"]
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    index: Index | Elsewhere | None = None


def build(rows: Shaped[np.ndarray, "n d"], labels: Int[ArrayLike, " n"], classes: int) -> Gallery:
    """Builds a gallery for :func:`class_distances`.

    Args:
      rows: ``[n, d]``, within float16's range of ±65504.
      labels: ``[n]``, their classes.
      classes: k; examples of at least two classes are needed.

    Raises:
      ValueError: there are no examples, a value is not finite in float16, a label is not a known
        class, or all examples are of one class.
    """
    labels = known_labels(labels, len(rows), classes)
    with np.errstate(over="ignore"):  # checked below
        examples = rows.astype(np.float16)
    if not rows.size or not np.isfinite(examples).all():
        raise ValueError("examples: got none, or one beyond the range of float16")
    if labels.min() == labels.max():
        raise ValueError(f"labels: got class {labels[0]} only, wanted two or more")
    order = np.argsort(labels, kind="stable")
    examples, labels = examples[order], labels[order].astype(np.int32)
    half_squares = np.einsum("nd,nd->n", examples, examples, dtype=np.float32) / 2
    return Gallery(examples, half_squares, labels)


def directions(
    rows: Shaped[np.ndarray, "n d"], labels: Int[ArrayLike, " n"], classes: int
) -> Gallery:
    """Builds a gallery of unit vectors for :func:`cosines`; rows that are all 0 are left out.

    Args:
      rows: ``[n, d]``, finite vectors of any length.
      labels: ``[n]``, their classes.
      classes: k; examples of at least two classes are needed.

    Raises:
      ValueError: there are no examples other than 0, a value is not finite, a label is not a known
        class, or all examples are of one class.
    """
    kept = np.any(rows != 0, axis=1)
    return build(unit(rows[kept]), np.asarray(labels)[kept], classes)


def extended(
    gallery: Gallery, rows: Shaped[np.ndarray, "m d"], labels: Int[ArrayLike, " m"]
) -> Gallery:
    """Returns a gallery with examples added.

    Args:
      gallery: from :func:`build` or :func:`directions`.
      rows: ``[m, d]``, in the form of the gallery's examples.
      labels: ``[m]``, their classes.

    Raises:
      ValueError: a value is not finite in float16.
    """
    with np.errstate(over="ignore"):  # checked below
        added = np.asarray(rows).astype(np.float16)
    if not np.isfinite(added).all():
        raise ValueError("examples: got one beyond the range of float16")
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
    """Returns a score's model with examples added to its gallery.

    Rows that are all 0 are left out, because they have no direction.

    Args:
      model: a named tuple with the fields of a :class:`Gallery`, and ``classes``.
      rows: ``[m, d]``, in the form of the gallery's examples.
      labels: ``[m]``, their classes.
      classes: k, including the classes that the examples add.

    Raises:
      ValueError: a value is not finite in float16.
    """
    kept = np.any(rows != 0, axis=1)
    before = Gallery(model.examples, model.half_squares, model.labels)
    after = extended(before, rows[kept], np.asarray(labels)[kept])
    return model._replace(**after._asdict(), classes=np.array(classes))


def unit(rows: Shaped[ArrayLike, "... d"]) -> Any:
    """Scales rows to length 1, in float32; a row that is all 0 stays 0."""
    xp = numpy_of(rows)
    rows = xp.asarray(rows, np.float32)
    largest = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    rows = rows / xp.where(largest > 0, largest, 1)  # so squares neither overflow nor vanish
    lengths = xp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / xp.where(lengths > 0, lengths, 1)


_unit = jax.jit(unit)


def numpy_of(array: Any) -> Any:
    """Returns the array's module, jax.numpy or NumPy, for code that is traced or runs eagerly."""
    return jnp if isinstance(array, jax.Array) else np


def in_double(array: Any) -> Any:
    """Converts a NumPy array to float64; a JAX array, which has no float64, is left unchanged."""
    return array if isinstance(array, jax.Array) else np.asarray(array, np.float64)


def ready(model: Model, *, room: bool = False) -> Model:
    """Prepares a fitted model for many searches.

    Its float16 arrays are put on the device in float32, and a gallery gets an index if a search in
    two stages is faster.

    Args:
      room: whether to leave room for further examples and classes (:func:`with_room`), because
        galleries that grow follow one after the other.
      model: a named tuple of arrays. It is a gallery if it has the fields of a :class:`Gallery`
        and ``classes``; its attribute ``forms``, 1 by default, is the number of forms that each
        query is compared in.
    """

    def put(leaf: Any) -> Any:
        return _on_device(leaf) if getattr(leaf, "dtype", None) == np.float16 else leaf

    given: Any = model
    if room and is_gallery(given) and given.index is None:
        found = Gallery(given.examples, given.half_squares, given.labels)
        given = given._replace(**with_room(found, int(np.asarray(given.classes)))._asdict())
    placed: Any = jax.tree.map(put, given)
    if is_gallery(placed) and placed.index is None:
        if reranking.pays(np.shape(placed.examples), getattr(placed, "forms", 1)):
            arrays = placed.examples, placed.half_squares, placed.labels
            count = _classes(placed.labels, int(np.asarray(placed.classes)))
            placed = placed._replace(index=reranking.index(*arrays, count))
    return placed


def with_room(gallery: Gallery, classes: int) -> Gallery:
    """Returns a gallery with rows that no search finds, up to one of a few shapes.

    A program is compiled for the number of examples of each class. With room, galleries that
    differ by a few examples or classes share a program.

    Args:
      gallery: from :func:`build` or :func:`directions`.
      classes: k. Classes are added up to a multiple of 8, and examples of each class up to a
        multiple of 16, of 32 from 128 examples on, and so on: by a quarter at most, or to 16.
    """
    numbers = np.arange(-(-classes // _CLASSES) * _CLASSES)
    labels = np.asarray(gallery.labels)
    counts = np.bincount(labels, minlength=len(numbers))
    steps = np.maximum(_ROWS, 1 << np.maximum(np.frexp(counts)[1] - 3, 0))
    sizes = np.maximum(-(-counts // steps), 1) * steps
    starts = np.cumsum(sizes) - sizes
    places = np.arange(len(labels)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    shape = (int(sizes.sum()), np.shape(gallery.examples)[1])
    examples = np.zeros(shape, np.asarray(gallery.examples).dtype)
    half_squares = np.full(len(examples), np.inf, np.float32)
    examples[places], half_squares[places] = gallery.examples, gallery.half_squares
    return Gallery(examples, half_squares, np.repeat(numbers, sizes).astype(np.int32))


def _classes(labels: Int[ArrayLike, " n"], classes: int) -> int:
    """Returns the number of classes with those that :func:`with_room` has added."""
    return max(classes, int(np.max(labels, initial=-1)) + 1)


def _on_device(array: Any) -> Array:
    """Puts an array on the device in float32.

    A NumPy array is converted on the host: as an operation of jax, the conversion would be a
    program of its own, which every process compiles again.
    """
    if isinstance(array, jax.Array):
        return array.astype(jnp.float32)
    return jax.device_put(np.asarray(array, np.float32))


def is_gallery(model: Any) -> bool:
    """Checks whether a fitted model has the fields of a :class:`Gallery`, and ``classes``."""
    return {*Gallery._fields, "classes"} <= set(getattr(model, "_fields", ()))


def class_distances(
    gallery: Gallery,
    queries: Float[ArrayLike, "b d"],
    classes: int,
    *,
    block_size: int = BLOCK,
) -> Float[np.ndarray, "b k"]:
    """Computes the distance of each query to the nearest example of each class.

    Distances are computed from products. Their error is about 5e-4 of the vectors' lengths, the
    resolution of float16.

    Args:
      gallery: from :func:`build`.
      queries: ``[b, d]``.
      classes: k; the distance to a class without an example is infinite.
      block_size: number of queries per block.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    rows = np.asarray(queries, np.float32)
    squares = np.square(rows).sum(axis=1, keepdims=True)
    beyond = proximities(gallery, rows[:, None], classes, (0,), block_size)
    return np.sqrt(np.maximum(squares - 2 * beyond, 0))


def traced_distances(gallery: Gallery, queries: Array, classes: int) -> Float[Array, "b k"]:
    """Computes :func:`class_distances` in one block, for a traced graph.

    Args:
      gallery: from :func:`build`; its labels are a NumPy array.
      queries: ``[b, d]``; b may be symbolic.
      classes: k; the distance to a class without an example is infinite.
    """
    beyond = _traced(gallery, queries[:, None], classes, (0,))
    squares = jnp.sum(jnp.square(queries), axis=1, keepdims=True)
    return jnp.sqrt(jnp.maximum(squares - 2 * beyond, 0))


def _traced(
    gallery: Gallery, queries: Array, classes: int, estimated: tuple[int, ...]
) -> Float[Array, "b k"]:
    examples = jnp.asarray(gallery.examples).astype(jnp.float32)
    if isinstance(gallery.index, Elsewhere):
        raise ValueError("a gallery held by other processes cannot be part of a graph")
    if gallery.index is not None:
        return reranking.nearest(examples, gallery.index, queries, estimated)[:, :classes]
    half_squares = jnp.asarray(gallery.half_squares)
    return _exhaustive(examples, half_squares, queries, ends=_ends(gallery.labels, classes))


def _ends(labels: Int[ArrayLike, " n"], classes: int) -> tuple[int, ...]:
    """Returns offsets: the examples of class c are those from ``[c]`` up to ``[c + 1]``."""
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
      gallery: from :func:`directions`.
      queries: ``[b, d]``, vectors of any length; the cosine of a query that is all 0 is 0 to the
        precision of float16. With shape ``[b, s, d]``, each query has s forms, and the one with the
        largest cosine counts.
      classes: k; the cosine to a class without an example is minus infinity.
      estimated: indices of the forms that the first stage of a search in two stages compares.
      block_size: number of queries per block, each in all its forms.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    rows = np.asarray(_unit(queries))
    rows = rows[:, None] if rows.ndim == 2 else rows
    return 0.5 + proximities(gallery, rows, classes, estimated, block_size).astype(np.float64)


def proximities(
    gallery: Gallery,
    queries: Float[ArrayLike, "b s d"],
    classes: int,
    estimated: tuple[int, ...],
    block_size: int,
) -> Float[np.ndarray, "b k"]:
    """Computes the largest q·x − x²/2 over a query's forms q and each class's examples x.

    Args:
      gallery: from :func:`build` or :func:`directions`.
      queries: ``[b, s, d]``, each in s forms.
      classes: k; the proximity to a class without an example is minus infinity.
      estimated: indices of the forms that the first stage of a search in two stages compares.
      block_size: number of queries per block.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    search: Callable[[Any], Any]
    queries = np.asarray(queries, np.float32)
    examples = _on_device(gallery.examples)
    if isinstance(gallery.index, Elsewhere):
        search = partial(gallery.index.proximities, classes=classes, estimated=estimated)
    elif gallery.index is None:
        half_squares = _on_device(gallery.half_squares)
        ends = _ends(gallery.labels, _classes(gallery.labels, classes))
        search = partial(_exhaustive, examples, half_squares, ends=ends)
    else:
        search = partial(_reranked, examples, gallery.index, estimated=estimated)
    found = [np.zeros((0, classes), np.float32)]
    for start in range(0, len(queries), block_size):
        block = queries[start : start + block_size]
        # Each size is compiled separately: padding to powers of two keeps their number small.
        size = min(block_size, 1 << (len(block) - 1).bit_length())
        if len(block) < size:
            block = np.pad(block, [(0, size - len(block)), (0, 0), (0, 0)])
        found.append(np.asarray(search(block))[: len(queries) - start, :classes])
    return np.concatenate(found)


@partial(jax.jit, static_argnames="ends")
def _exhaustive(
    examples: Array, half_squares: Array, queries: Array, ends: tuple[int, ...]
) -> Array:
    b, forms, d = queries.shape
    # The longer side goes first: on CPUs, XLA takes twice as long for the transposed product.
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
    """Computes :func:`cosines` in one block, for a traced graph, in float32."""
    rows = unit(queries)
    rows = rows[:, None] if rows.ndim == 2 else rows
    return 0.5 + _traced(gallery, rows, classes, estimated)


def two_nearest(distances: Float[ArrayLike, "b k"]) -> tuple[Any, Any]:
    """Returns the distances to the nearest and the second-nearest class, each ``[b]``, in float64.

    In a traced graph they keep their type.
    """
    nearest = numpy_of(distances).sort(in_double(distances), axis=1)[:, :2]
    return nearest[:, 0], nearest[:, 1]
