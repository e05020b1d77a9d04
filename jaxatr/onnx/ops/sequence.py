"""Operators on sequences (Python lists) and optionals (a value or None)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.ops.registry import register
from jaxatr.onnx.ops.values import Known, Value, axis_of, known, known_int, known_ints, library


def _place(position: Known | None, length: int, last: int) -> int:
    """Returns a position as a nonnegative index of at most ``last``, the default."""
    if position is None:
        return last
    at = known_int("position", position)
    if not -length <= at <= last:
        raise ValueError(f"position: got {at}, wanted {-length} to {last}")
    return at + length if at < 0 else at


@register("SequenceConstruct")
def sequence_construct(*values: Any) -> list:
    """Returns the operands as a sequence (ONNX SequenceConstruct-11)."""
    return list(values)


@register("SequenceEmpty", dtypes=("dtype",))
def sequence_empty(*, dtype: str = "float32") -> list:
    """Returns an empty sequence (ONNX SequenceEmpty-11)."""
    dtype_of(dtype)
    return []


@register("SequenceLength")
def sequence_length(sequence: list) -> Value:
    """Returns the length of a sequence (ONNX SequenceLength-11)."""
    return np.array(len(sequence), np.int64)


@register("SequenceAt", static=("position",))
def sequence_at(sequence: list, position: Known) -> Any:
    """Returns one tensor of a sequence (ONNX SequenceAt-11)."""
    return sequence[_place(position, len(sequence), len(sequence) - 1)]


@register("SequenceInsert", static=("position",))
def sequence_insert(sequence: list, tensor: Any, position: Known | None = None) -> list:
    """Inserts a tensor into a sequence, by default at its end (ONNX SequenceInsert-11)."""
    at = _place(position, len(sequence), len(sequence))
    return [*sequence[:at], tensor, *sequence[at:]]


@register("SequenceErase", static=("position",))
def sequence_erase(sequence: list, position: Known | None = None) -> list:
    """Removes a tensor from a sequence, by default the last (ONNX SequenceErase-11)."""
    at = _place(position, len(sequence), len(sequence) - 1)
    return [*sequence[:at], *sequence[at + 1 :]]


@register("SplitToSequence", static=("split",))
def split_to_sequence(
    x: Value, split: Known | None = None, *, axis: int = 0, keepdims: int = 1
) -> list:
    """Splits a tensor along an axis into a sequence (ONNX SplitToSequence-24).

    Args:
      x: array of any shape.
      split: length of every piece (the last may be shorter), or a list of lengths; 1 by default.
      axis: axis to split.
      keepdims: whether pieces keep the axis; only without ``split``.
    """
    axis = axis_of(axis, x.ndim)
    length = x.shape[axis]
    sizes = (1,) * length if split is None else known_ints("split", split)
    if split is not None and np.ndim(known("split", split)) == 0:
        if sizes[0] < 1:
            raise ValueError(f"split: got {sizes[0]}, wanted a positive length")
        sizes = [min(sizes[0], length - at) for at in range(0, length, sizes[0])]
    if sum(sizes) != length or min(sizes, default=0) < 0:
        raise ValueError(f"split: got {tuple(sizes)}, wanted lengths that sum to {length}")
    ends = [int(end) for end in np.cumsum(sizes)]
    pieces = library(x).split(x, ends, axis=axis)[
        : len(sizes)
    ]  # after the last end nothing is left
    return pieces if keepdims or split is not None else [piece.squeeze(axis) for piece in pieces]


@register("ConcatFromSequence")
def concat_from_sequence(sequence: list, *, axis: int, new_axis: int = 0) -> Value:
    """Concatenates or stacks the tensors of a sequence (ONNX ConcatFromSequence-11)."""
    lib = library(*sequence)
    return lib.stack(sequence, axis) if new_axis else lib.concatenate(sequence, axis)


@register("SequenceMap")
def sequence_map(sequence: list, *more: Any, body: Any, outputs: int = 1) -> Any:
    """Applies a function to each tensor of a sequence (ONNX SequenceMap-17).

    Args:
      sequence: the tensors.
      *more: sequences of the same length, or tensors that are passed to every call.
      body: function from one element of each operand to a tuple of tensors.
      outputs: number of sequences to return.
    """
    rows = []
    for index, value in enumerate(sequence):
        rows.append(body(value, *(m[index] if isinstance(m, list) else m for m in more)))
    columns = tuple([row[i] for row in rows] for i in range(outputs))
    return columns if outputs > 1 else columns[0]


@register("Optional")
def optional(value: Any = None, *, type: Any = None) -> Any:
    """Returns its operand, which is None for an empty optional (ONNX Optional-15)."""
    return value


@register("OptionalGetElement")
def optional_get_element(value: Any) -> Any:
    """Returns the value of an optional (ONNX OptionalGetElement-18).

    Raises:
      ValueError: the optional has no value.
    """
    if value is None:
        raise ValueError("input: got an optional without a value")
    return value


@register("OptionalHasElement")
def optional_has_element(value: Any = None) -> Value:
    """Returns whether an optional has a value, as a NumPy array (ONNX OptionalHasElement-18)."""
    return np.array(value is not None)


@register("ReverseSequence")
def reverse_sequence(
    x: Value, sequence_lens: Value, *, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    """Reverses the first ``sequence_lens`` elements of each sequence (ONNX ReverseSequence-10)."""
    moved = jnp.moveaxis(x, (batch_axis, time_axis), (0, 1))
    at, lengths = jnp.arange(moved.shape[1]), jnp.asarray(sequence_lens)[:, None]
    order = jnp.where(at < lengths, lengths - 1 - at, at)
    order = order.reshape(order.shape + (1,) * (moved.ndim - 2))
    return jnp.moveaxis(jnp.take_along_axis(moved, order, 1), (0, 1), (batch_axis, time_axis))
