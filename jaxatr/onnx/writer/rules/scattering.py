"""Rules for ``scatter`` and its relatives, which write elements at indices."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxatr.onnx.writer.rules.indexing import elements
from jaxatr.onnx.writer.translate import Equation, Tensor, Translator, rule
from jaxatr.typing import Array


class _Kind(NamedTuple):
    """How a new element is joined with the one that is there.

    Attributes:
      scatter: jax's function.
      joined: the same, of two arrays.
      reduction: its name in ONNX.
    """

    scatter: Callable[..., Array]
    joined: Callable[[Array, Array], Array]
    reduction: str


_KINDS = {
    "scatter": _Kind(lax.scatter, lambda before, new: new, "none"),
    "scatter-add": _Kind(lax.scatter_add, lax.add, "add"),
    "scatter-max": _Kind(lax.scatter_max, lax.max, "max"),
    "scatter-min": _Kind(lax.scatter_min, lax.min, "min"),
    "scatter-mul": _Kind(lax.scatter_mul, lax.mul, "mul"),
}


@rule(*_KINDS, unread="update_consts update_jaxpr")
def _scatter(t: Translator, equation: Equation) -> Tensor | list[Tensor]:
    kind, mode = _KINDS[equation.primitive], equation.params["mode"]
    given = equation.params["dimension_numbers"]
    numbers = lax.ScatterDimensionNumbers(*(tuple(map(int, axes)) for axes in given))
    indices = t.operand(equation, 1)
    operand, _, updates = equation.in_avals
    rows = _of_rows(indices.shape[-1], len(operand.shape), len(updates.shape))
    if numbers == rows and mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        names = [t.read(equation, 0), t.name(t.cast(indices, np.int64)), t.read(equation, 2)]
        return t.add("ScatterND", names, operand.shape, reduction=kind.reduction)
    if indices.array is not None and _inside(numbers, operand.shape, updates.shape, indices.array):
        mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return t.written(partial(_in_rows, kind, numbers, mode), equation)


def _of_rows(count: int, rank: int, of_updates: int) -> lax.ScatterDimensionNumbers:
    """Returns the form that ONNX has: whole rows, at indices on the first axes."""
    first, windows = tuple(range(count)), rank - count
    trailing = tuple(range(of_updates - windows, of_updates))
    return lax.ScatterDimensionNumbers(trailing, first, first)


def _windows(numbers: Any, rank: int) -> dict[int, int]:
    """Returns the axes of the operand along which a window extends, and those of the updates."""
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    axes = [axis for axis in range(rank) if axis not in single]
    return dict(zip(axes, numbers.update_window_dims, strict=True))


def _inside(
    numbers: Any, shape: tuple[Any, ...], updates: tuple[Any, ...], indices: np.ndarray
) -> bool:
    """Returns whether all windows are within the operand, as far as that is known."""
    windows = _windows(numbers, len(shape))
    sizes = {axis: updates[place] for axis, place in windows.items()}
    ends = [shape[axis] - sizes.get(axis, 1) for axis in numbers.scatter_dims_to_operand_dims]
    if not all(isinstance(end, int) for end in ends):
        return False
    return bool(np.all((indices >= 0) & (indices <= np.array(ends, int))))


def _in_rows(
    kind: _Kind, numbers: Any, mode: Any, operand: Array, indices: Array, updates: Array
) -> Array:
    """Scatters whole rows: the axes on which something is written come first.

    A window that is shorter than the operand becomes one index for each of its elements. What is
    out of bounds and to be dropped is written to a row that is cut off again.
    """
    shape, batch = operand.shape, indices.shape[:-1]
    windows = _windows(numbers, operand.ndim)
    sizes = dict.fromkeys(range(operand.ndim), 1)
    sizes |= {axis: updates.shape[place] for axis, place in windows.items()}
    indexed = zip(numbers.scatter_dims_to_operand_dims, jnp.unstack(indices, axis=-1), strict=True)
    starts = dict(indexed)
    pairs = zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
    for axis, place in pairs:
        starts[axis] = lax.broadcasted_iota(indices.dtype, batch, place)
    whole = [axis for axis in windows if axis not in starts and sizes[axis] == shape[axis]]
    written = [axis for axis in range(operand.ndim) if axis not in whole]
    if not written:
        return kind.joined(operand, updates)
    first = jnp.zeros(batch, indices.dtype)
    starts = {axis: starts.get(axis, first) for axis in written}
    spread = {axis: sizes[axis] for axis in written if axis in windows}
    limits = {axis: shape[axis] - sizes[axis] for axis in written}
    places, inside = elements(starts, limits, spread, mode)
    rows = operand.transpose(*written, *whole)
    if inside is not None:
        ends = {axis: shape[axis] if axis == written[0] else 0 for axis in written}
        places = {axis: jnp.where(inside, one, ends[axis]) for axis, one in places.items()}
        rows = jnp.concatenate([rows, rows[:1]])
    others = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    new = updates.transpose(*others, *(windows[axis] for axis in (*spread, *whole)))
    form = _of_rows(len(written), operand.ndim, new.ndim)
    found = kind.scatter(
        rows,
        jnp.stack(list(places.values()), axis=-1),
        new,
        form,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    found = found if inside is None else found[: shape[written[0]]]
    return found.transpose(*np.argsort([*written, *whole]).tolist())
