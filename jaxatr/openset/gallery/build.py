"""A gallery of training examples by class, in float16."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.openset.gallery.reranking import Index
from jaxatr.openset.gallery.rounding import Rounded
from jaxatr.openset.inputs import known_labels
from jaxatr.typing import ArrayLike, Float, Int, Shaped

LEAST = 1e-6
"""Lower bound of distances whose logarithm is taken."""

Remote = Callable[[np.ndarray, int, tuple[int, ...]], np.ndarray]
"""``(queries [b, s, d], classes k, estimated forms) -> proximities [b, k]``: a search of examples
that other processes hold."""


class Gallery(NamedTuple):
    """Examples to search.

    Attributes:
      examples: ``[n, d]``, float16; in a graph also in 8 bits.
      half_squares: ``[n]``, half their squared lengths.
      labels: ``[n]``, their classes, ascending.
      index: an index for a search in two stages, or a search in the processes that hold the
        examples; None to compare every example.
    """

    examples: Shaped[ArrayLike, "n d"] | Rounded
    half_squares: Float[ArrayLike, " n"]
    labels: Int[ArrayLike, " n"]
    index: Index | Remote | None = None


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
      ValueError: there are no examples, or all are equal; a value is not finite, a label is not a
        known class, or all examples are of one class.
    """
    if len(rows) and (rows == rows[0]).all():  # 0, or a rounding error, after centring
        raise ValueError("examples: all are equal, wanted different ones")
    kept = _have_direction(rows)
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
    kept = _have_direction(rows)
    after = extended(of(model), rows[kept], np.asarray(labels)[kept])
    return model._replace(**after._asdict(), classes=np.array(classes))


def without_examples(
    model: Any,
    rows: Shaped[np.ndarray, "m d"],
    labels: Int[np.ndarray, " m"],
    out: Int[np.ndarray, " o"],
) -> Any:
    """Returns a score's model that finds some of the examples of a new class no more.

    Its arrays keep their shapes, and its index the directions, so that this takes no time beside a
    gallery without the examples.

    Args:
      model: a named tuple with the fields of a :class:`Gallery`, also with an index.
      rows: ``[m, d]``, the examples that :func:`with_examples` has added.
      labels: ``[m]``, their classes.
      out: ``[o]``, which of them to hide, at least one; all of a class without other examples.
    """
    label, squares = labels[out[0]], np.array(model.half_squares)
    places = np.flatnonzero((np.asarray(model.labels) == label) & np.isfinite(squares))
    added = np.flatnonzero(_have_direction(rows) & (labels == label))
    places = places[np.isin(added, out)]
    squares[places] = np.inf
    index = model.index
    if index is not None:
        hidden = np.isin(np.asarray(index.rows), places)
        index = index._replace(half_squares=jnp.where(hidden, jnp.inf, index.half_squares))
    return model._replace(half_squares=jnp.asarray(squares), index=index)


def _have_direction(rows: Shaped[np.ndarray, "n d"]) -> np.ndarray:
    return np.any(rows != 0, axis=1)


_CLASSES, _ROWS = 8, 16  # least room for classes, and for examples of a class


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


def unit(rows: Shaped[ArrayLike, "... d"]) -> Any:
    """Scales rows to length 1, in float32; a row that is all 0 stays 0."""
    xp = numpy_of(rows)
    rows = xp.asarray(rows, np.float32)
    largest = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    rows = rows / xp.where(largest > 0, largest, 1)  # so squares neither overflow nor vanish
    lengths = xp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / xp.where(lengths > 0, lengths, 1)


def numpy_of(array: Any) -> Any:
    """Returns the array's module, jax.numpy or NumPy, for code that is traced or runs eagerly."""
    return jnp if isinstance(array, jax.Array) else np


def in_double(array: Any) -> Any:
    """Converts a NumPy array to float64; a JAX array, which has no float64, is left unchanged."""
    return array if isinstance(array, jax.Array) else np.asarray(array, np.float64)


def is_gallery(model: Any) -> bool:
    """Checks whether a fitted model has the fields of a :class:`Gallery`, and ``classes``."""
    return {*Gallery._fields, "classes"} <= set(getattr(model, "_fields", ()))


def of(model: Any) -> Gallery:
    """Returns the gallery of a fitted model that has its fields."""
    return Gallery(*(getattr(model, name) for name in Gallery._fields))
