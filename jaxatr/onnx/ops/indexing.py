"""Operators that read or write elements at indices given by data."""

from types import ModuleType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import (
    Known,
    Value,
    axis_of,
    first_results,
    hold_strings,
    known,
    known_int,
    library,
    sized,
)

Reduction = Literal["none", "add", "mul", "max", "min"]


def wrapped(indices: Value, length: int) -> Value:
    """Returns indices with ``length`` added to negative ones."""
    return library(indices).where(indices < 0, indices + length, indices)


@register("Gather", folds=True)
def gather(data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Returns the slices of ``data`` at ``indices`` along an axis (ONNX Gather-13)."""
    axis = axis_of(axis, data.ndim)
    shape = (*data.shape[:axis], *np.shape(indices), *data.shape[axis + 1 :])
    if library(data, indices, shape=shape) is np:
        return np.take(data, indices, axis)
    return jnp.take(data, wrapped(indices, data.shape[axis]), axis)


@register("GatherElements")
def gather_elements(data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Returns the element at each of ``indices`` along an axis (ONNX GatherElements-13)."""
    axis = axis_of(axis, data.ndim)
    lib = np if hold_strings(data, indices) else jnp
    return lib.asarray(data)[_places(data, indices, axis, lib)]


def _places(data: Value, indices: Value, axis: int, lib: ModuleType = jnp) -> tuple[Value, ...]:
    """Returns an index array for each axis: ``indices`` for ``axis``, a grid for the others."""
    rank = indices.ndim
    grid = [
        lib.arange(size).reshape([-1 if i == j else 1 for j in range(rank)])
        for i, size in enumerate(indices.shape)
    ]
    grid[axis] = wrapped(lib.asarray(indices), data.shape[axis])
    return tuple(grid)


@register("GatherND")
def gather_nd(data: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """Returns the slices at the coordinates in the last axis of ``indices`` (ONNX GatherND-13)."""

    def take(x, i):
        return x[tuple(wrapped(i[..., k], x.shape[k]) for k in range(i.shape[-1]))]

    if hold_strings(data, indices):
        batch = indices.shape[:batch_dims]
        found = [take(data[place], np.asarray(indices)[place]) for place in np.ndindex(batch)]
        shape = (*indices.shape[:-1], *data.shape[batch_dims + indices.shape[-1] :])
        return np.array(found, data.dtype).reshape(shape)
    for _ in range(batch_dims):
        take = jax.vmap(take)
    return take(jnp.asarray(data), jnp.asarray(indices))


def _updated(data: Value, positions: Any, updates: Value, reduction: str) -> Value:
    methods = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}
    if reduction not in methods:
        raise ValueError(f"reduction: got {reduction!r}, wanted one of {list(methods)}")
    return getattr(jnp.asarray(data).at[positions], methods[reduction])(jnp.asarray(updates))


@register("Scatter")
@register("ScatterElements")
def scatter_elements(
    data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: Reduction = "none"
) -> Value:
    """Writes ``updates`` into ``data`` at ``indices`` along an axis (ONNX ScatterElements-18)."""
    axis = axis_of(axis, data.ndim)
    return _updated(data, _places(data, indices, axis), updates, reduction)


@register("ScatterND")
def scatter_nd(
    data: Value, indices: Value, updates: Value, *, reduction: Reduction = "none"
) -> Value:
    """Writes ``updates`` at the coordinates in the last axis of ``indices`` (ONNX ScatterND-18)."""
    indices = jnp.asarray(indices)
    positions = tuple(wrapped(indices[..., k], data.shape[k]) for k in range(indices.shape[-1]))
    return _updated(data, positions, updates, reduction)


@register("OneHot", settings=("values",), static=("depth",))
def one_hot(indices: Value, depth: Known, values: Value, *, axis: int = -1) -> Value:
    """Encodes indices one-hot along a new axis, with ``values`` (off, on) (ONNX OneHot-11)."""
    count = int(known("depth", depth).reshape(()))
    sized((*indices.shape, count))
    axis = axis_of(axis, indices.ndim + 1)
    at = jnp.expand_dims(wrapped(jnp.asarray(indices).astype("int64"), count), axis)
    ruler = jnp.arange(count).reshape([-1 if i == axis else 1 for i in range(at.ndim)])
    return jnp.where(at == ruler, values[1], values[0])


@register("TopK", static=("k",))
def top_k(
    x: Value, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, Value]:
    """Returns the ``k`` largest (or smallest) values along an axis, and their indices (TopK-11)."""
    count, axis = known_int("k", k), axis_of(axis, x.ndim)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k: got {count}, wanted 0 to {x.shape[axis]}")
    order = jnp.argsort(jnp.asarray(x), axis=axis, stable=True, descending=bool(largest))
    order = jax.lax.slice_in_dim(order, 0, count, axis=axis).astype("int64")
    return jnp.take_along_axis(jnp.asarray(x), order, axis), order


@register("NonZero")
def nonzero(x: Value) -> Value:
    """Returns the coordinates of the nonzero elements, one column each (ONNX NonZero-13).

    A scalar has no coordinates: ``[0, 1]`` if it is nonzero, else ``[0, 0]``.
    """
    return np.argwhere(known("x", x)).T.astype(np.int64)


@register("Compress", static=("condition",))
def compress(x: Value, condition: Known, *, axis: int | None = None) -> Value:
    """Returns the slices along an axis, or elements, where a condition is true (Compress-11)."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    picked = np.flatnonzero(known("condition", condition))
    return library(x).take(x, picked, axis=axis_of(axis, x.ndim))


@register("Unique")
def unique(
    x: Value, *, axis: int | None = None, sorted: int = 1, outputs: int = 1
) -> Value | tuple[Value, ...]:
    """Returns the unique values or slices, sorted or in order of first occurrence (Unique-11).

    Returns:
      The first ``outputs`` of the unique values, the indices of their first occurrences, the
      inverse indices and the counts, as returned by :func:`numpy.unique`.
    """
    array = known("x", x)
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis = axis_of(axis, array.ndim)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    numbers = (part.astype(np.int64) for part in (first, inverse, counts))
    return first_results((values, *numbers), outputs)


@register("TensorScatter")
def tensor_scatter(
    past_cache: Value,
    update: Value,
    write_indices: Value | None = None,
    *,
    axis: int = -2,
    mode: Literal["linear", "circular"] = "linear",
) -> Value:
    """Writes ``update`` into a cache, at ``write_indices`` of each example (TensorScatter-24)."""
    axis = axis_of(axis, past_cache.ndim)
    length, count = past_cache.shape[axis], update.shape[axis]
    start = jnp.zeros(past_cache.shape[0], "int64") if write_indices is None else write_indices
    at = jnp.asarray(start)[:, None] + jnp.arange(count)
    if mode == "circular":
        at = at % length
    cache, new = (jnp.moveaxis(jnp.asarray(v), axis, 1) for v in (past_cache, update))
    written = jax.vmap(lambda c, i, u: c.at[i].set(u))(cache, at, new)
    return jnp.moveaxis(written, 1, axis)


@register("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(x: Value, y: Value) -> Value:
    """Returns the elements at indices ``y`` of the last axis (ONNX ML ArrayFeatureExtractor-1)."""
    return gather(x.reshape(1, -1) if x.ndim == 1 else x, np.reshape(y, -1), axis=-1)
