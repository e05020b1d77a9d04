"""The search of a gallery for the nearest example of each class.

Examples are searched in float32 on the device. They are sorted by class, so that the products of
each class are contiguous. The largest arrays are the examples and their products with one block of
queries. A large gallery is searched in two stages (:mod:`~jaxatr.openset.gallery.reranking`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.openset.gallery import reranking
from jaxatr.openset.gallery.build import (
    Gallery,
    in_double,
    is_gallery,
    numpy_of,
    of,
    unit,
    with_room,
)
from jaxatr.openset.gallery.reranking import Index
from jaxatr.openset.gallery.rounding import Rounded, products
from jaxatr.typing import Array, ArrayLike, Float, Int, Shaped

BLOCK = 256

Model = TypeVar("Model")

_unit = jax.jit(unit)


def ready(model: Model, *, room: bool = False) -> Model:
    """Prepares a fitted model for many searches.

    Its float16 arrays and the examples that it searches are put on the device in float32, and a
    gallery gets an index if a search in two stages is faster.

    Args:
      model: a named tuple of arrays. It is a gallery if it has the fields of a :class:`Gallery`
        and ``classes``; its attribute ``forms``, 1 by default, is the number of forms that each
        query is compared in. One without may name the field of its examples as ``searched``.
      room: whether to leave room for further examples and classes
        (:func:`~jaxatr.openset.gallery.build.with_room`), because galleries that grow follow one
        after the other.
    """

    def put(leaf: Any) -> Any:
        return _on_device(leaf) if getattr(leaf, "dtype", None) == np.float16 else leaf

    given: Any = model
    if room and is_gallery(given) and given.index is None:
        found = with_room(of(given), int(np.asarray(given.classes)))
        given = given._replace(**found._asdict())
    placed: Any = jax.tree.map(put, given)
    if name := getattr(placed, "searched", ""):
        placed = placed._replace(**{name: _on_device(getattr(placed, name))})
    if is_gallery(placed) and placed.index is None:
        placed = placed._replace(half_squares=_on_device(placed.half_squares))
        if reranking.pays(np.shape(placed.examples), getattr(placed, "forms", 1)):
            arrays = placed.examples, placed.half_squares, placed.labels
            count = _classes(placed.labels, int(np.asarray(placed.classes)))
            placed = placed._replace(index=reranking.index(*arrays, count))
    return placed


def _on_device(array: Any) -> Array:
    """Puts an array on the device in float32.

    A NumPy array is converted on the host: as an operation of jax, the conversion would be a
    program of its own, which every process compiles again.
    """
    if isinstance(array, jax.Array):
        return array.astype(jnp.float32)
    return jax.device_put(np.asarray(array, np.float32))


def class_distances(
    gallery: Gallery,
    queries: Float[ArrayLike, "b d"],
    classes: int,
    *,
    block_size: int = BLOCK,
) -> Any:
    """Computes the distance of each query to the nearest example of each class, ``[b, k]``.

    Distances are computed from products. Their error is about 5e-4 of the vectors' lengths, the
    resolution of float16.

    Args:
      gallery: from :func:`~jaxatr.openset.gallery.build`.
      queries: ``[b, d]``.
      classes: k; the distance to a class without an example is infinite.
      block_size: number of queries per block.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    xp = numpy_of(queries)
    rows = xp.asarray(queries, np.float32)
    squares = xp.square(rows).sum(axis=1, keepdims=True)
    beyond = proximities(gallery, rows[:, None], classes, (0,), block_size)
    return xp.sqrt(xp.maximum(squares - 2 * beyond, 0))


def cosines(
    gallery: Gallery,
    queries: Float[ArrayLike, "b d"],
    classes: int,
    *,
    block_size: int = BLOCK,
) -> Any:
    """Computes the largest cosine of each query to an example of each class, ``[b, k]`` in float64.

    Args:
      gallery: from :func:`~jaxatr.openset.gallery.directions`.
      queries: ``[b, d]``, vectors of any length; the cosine of a query that is all 0 is 0 to the
        precision of float16.
      classes: k; the cosine to a class without an example is minus infinity.
      block_size: number of queries per block.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    rows = _unit(queries)
    if not isinstance(rows, Tracer):
        rows = np.asarray(rows)  # an axis added to a JAX array would be a program of its own
    return unit_cosines(gallery, rows[:, None], classes, (0,), block_size)


def unit_cosines(
    gallery: Gallery,
    queries: Float[ArrayLike, "b s d"],
    classes: int,
    estimated: tuple[int, ...],
    block_size: int,
) -> Any:
    """Computes :func:`cosines` of queries of length 1 in several forms; the largest counts.

    Args:
      gallery: from :func:`~jaxatr.openset.gallery.directions`.
      queries: ``[b, s, d]``, each in s forms.
      classes: k; the cosine to a class without an example is minus infinity.
      estimated: indices of the forms that the first stage of a search in two stages compares.
      block_size: number of queries per block, each in all its forms.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    return 0.5 + in_double(proximities(gallery, queries, classes, estimated, block_size))


def proximities(
    gallery: Gallery,
    queries: Float[ArrayLike, "b s d"],
    classes: int,
    estimated: tuple[int, ...],
    block_size: int,
) -> Any:
    """Computes the largest q·x − x²/2 over a query's forms q and each class's examples x.

    Args:
      gallery: from :func:`~jaxatr.openset.gallery.build` or ``directions``.
      queries: ``[b, s, d]``, each in s forms.
      classes: k; the proximity to a class without an example is minus infinity.
      estimated: indices of the forms that the first stage of a search in two stages compares.
      block_size: number of queries per block.

    Raises:
      ValueError: ``block_size`` is below 1, or a traced graph would contain a gallery that other
        processes hold.
    """
    index = gallery.index
    if index is not None and not isinstance(index, Index):
        if isinstance(queries, Tracer):
            raise ValueError("a gallery held by other processes cannot be part of a graph")
        return in_blocks(lambda block: index(block, classes, estimated), queries, block_size)
    examples = gallery.examples
    examples = examples if isinstance(examples, Rounded) else _on_device(examples)
    if index is not None:
        search = partial(_reranked, examples, index, estimated=estimated)
    else:
        # The examples of class c are those from ends[c] up to ends[c + 1].
        labels = np.asarray(gallery.labels)
        ends = np.searchsorted(labels, np.arange(_classes(labels, classes) + 1))
        half_squares = _on_device(gallery.half_squares)
        search = partial(_exhaustive, examples, half_squares, ends=tuple(ends.tolist()))
    return in_blocks(search, queries, block_size)[:, :classes]


def _classes(labels: Int[ArrayLike, " n"], classes: int) -> int:
    """Returns the number of classes with those that :func:`with_room` has added."""
    return max(classes, int(np.max(np.asarray(labels), initial=-1)) + 1)


def in_blocks(
    function: Callable[[Any], Any], queries: Shaped[ArrayLike, "b ..."], block_size: int
) -> Any:
    """Calls a function of queries with blocks of them, and concatenates the results.

    In a traced graph, where their number may be symbolic, they are one block.

    Raises:
      ValueError: ``block_size`` is below 1.
    """
    if isinstance(queries, Tracer):
        return function(queries)
    if block_size < 1:
        raise ValueError(f"block_size: got {block_size}, wanted at least 1")
    rows, found = np.asarray(queries), []
    for start in range(0, max(1, len(rows)), block_size):
        block = rows[start : start + block_size]
        # Each size is compiled separately: padding to powers of two keeps their number small.
        size = min(block_size, 1 << (len(block) - 1).bit_length())
        if len(block) < size:
            block = np.pad(block, [(0, size - len(block)), *[(0, 0)] * (block.ndim - 1)])
        found.append(np.asarray(function(block))[: len(rows) - start])
    return np.concatenate(found)


@partial(jax.jit, static_argnames="ends")
def _exhaustive(
    examples: Array | Rounded, half_squares: Array, queries: Array, ends: tuple[int, ...]
) -> Array:
    b, forms, d = queries.shape
    rows = queries.reshape(b * forms, d)
    whole = isinstance(examples, Rounded)
    found = products(examples, rows).T if whole else _dot(examples, rows)
    beyond = found.reshape(-1, b, forms).max(axis=2) - half_squares[:, None]
    nearest = [
        jnp.max(beyond[start:end], axis=0)
        if start < end
        else jnp.full_like(beyond, -jnp.inf, shape=beyond.shape[1:])
        for start, end in zip(ends[:-1], ends[1:], strict=True)
    ]
    return jnp.stack(nearest, axis=1)


@jax.jit
def _dot(rows: Array, others: Array) -> Array:
    numbers = ((1,), (1,)), ((), ())
    return jax.lax.dot_general(rows, others, numbers, precision=jax.lax.Precision.HIGHEST)


def dot(rows: Float[ArrayLike, "n d"], others: Float[ArrayLike, "m d"]) -> Any:
    """Computes the products of rows, ``[n, m]``, by XLA also of NumPy arrays.

    The threads of NumPy's library would go on waiting for work, and keep a core from the programs
    after it for some milliseconds.

    Args:
      rows: ``[n, d]``, the longer side: on CPUs, XLA takes twice as long for the other order.
      others: ``[m, d]``.
    """
    found = _dot(rows, others)
    return found if isinstance(found, Tracer) else np.asarray(found)


_reranked = jax.jit(reranking.nearest, static_argnames="estimated")


def two_nearest(distances: Float[ArrayLike, "b k"]) -> tuple[Any, Any]:
    """Returns the distances to the nearest and the second-nearest class, each ``[b]``, in float64.

    In a traced graph they keep their type.
    """
    nearest = numpy_of(distances).sort(in_double(distances), axis=1)[:, :2]
    return nearest[:, 0], nearest[:, 1]
