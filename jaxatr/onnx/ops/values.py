"""Shared helpers of the operators: known values, the choice of NumPy or jax.numpy, size checks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.onnx.ops.dtypes import is_text

# A tensor: a NumPy array if its value is known, else a jax array. NumPy's arithmetic turns 0-d
# arrays into scalars. These have all methods used here, but the type checker cannot tell.
if TYPE_CHECKING:
    Value: TypeAlias = jax.Array | np.ndarray
else:
    Value = jax.Array | np.ndarray | np.generic

Known: TypeAlias = jax.Array | np.ndarray | Sequence[int] | Sequence[float] | int | float
"""An operand whose value determines a shape; it may also be a Python number or sequence."""

LARGEST = 1 << 28
"""Maximum number of elements of an array whose size comes from a file or an operand."""

FOLDED = 1 << 22
"""Maximum number of elements that NumPy computes; jax computes larger arrays at run time."""

_folding: ContextVar[int | None] = ContextVar("folding", default=None)


class TooLargeToFold(ValueError):
    """A result is too large to compute while a model is loaded."""


@contextmanager
def folding(most: int) -> Iterator[None]:
    """Makes :func:`library` raise :class:`TooLargeToFold` for arrays that are too large to fold.

    Args:
      most: maximum number of elements of an array.
    """
    token = _folding.set(most)
    try:
        yield
    finally:
        _folding.reset(token)


def is_known(*values: Any) -> bool:
    """Returns whether all values are known now: none is a jax array."""
    return not any(isinstance(value, jax.Array) for value in values)


EAGER = "compute it without compiling: model(..., eager=True), or apply without jit"
"""The advice that ends an error message about a computation that jit cannot do."""


def library(*values: Any, shape: Iterable[int] | None = None) -> ModuleType:
    """Returns NumPy if all values are known and small or one holds strings, else jax.numpy.

    Args:
      *values: the operands.
      shape: shape of the result, if it can be larger than the operands.

    Raises:
      ValueError: all values are known and the result would have more than ``LARGEST`` elements, or
        strings are used with a value that is traced.
      TooLargeToFold: the result is larger than :func:`folding` allows.
    """
    if not is_known(*values):
        return np if hold_strings(*values) else jnp
    count = max((np.size(value) for value in values), default=0)
    if shape is not None:
        count = max(count, math.prod(sized(shape)))
    most = _folding.get()
    if count <= (FOLDED if most is None else min(most, FOLDED)):
        return np
    if most is not None:
        raise TooLargeToFold(f"got {count} elements")
    return jnp


def is_strings(value: Any) -> bool:
    """Returns whether a value is an array of strings."""
    return isinstance(value, np.ndarray) and is_text(value.dtype)


def hold_strings(*values: Any) -> bool:
    """Returns whether a value is an array of strings, which only NumPy computes with.

    Raises:
      ValueError: another value is traced.
    """
    if not any(map(is_strings, values)):
        return False
    if any(isinstance(value, Tracer) for value in values):
        raise ValueError(
            f"an operator of strings and of computed values cannot be compiled; {EAGER}"
        )
    return True


def known(name: str, value: Any) -> np.ndarray:
    """Returns the value of an operand that determines a shape.

    Args:
      name: name of the operand, for the error message.
      value: the operand.

    Raises:
      ValueError: the value is traced.
    """
    if isinstance(value, Tracer):
        raise ValueError(
            f"{name}: got {value.aval}, traced by jit or another transformation, but its value "
            f"must be known here. Make it a constant of the model, or {EAGER}"
        )
    return np.asarray(value)


def known_ints(name: str, value: Any) -> tuple[int, ...]:
    """Returns the integers of an operand (a list or a single number) that determines a shape.

    Raises:
      ValueError: the value is traced, or is not a list of integers.
    """
    array = known(name, value)
    if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name}: got {array.dtype} {array.shape}, wanted a list of integers")
    return tuple(int(number) for number in array.reshape(-1))


def known_int(name: str, value: Any) -> int:
    """Returns the value of an operand that holds one integer.

    Raises:
      ValueError: the value is traced, or is not one integer.
    """
    numbers = known_ints(name, value)
    if len(numbers) != 1:
        raise ValueError(f"{name}: got {len(numbers)} numbers, wanted one")
    return numbers[0]


def sized(shape: Iterable[Any]) -> tuple[Any, ...]:
    """Returns a shape that comes from a file or an operand, after checking it.

    Symbolic dimensions, which an export leaves free, are not checked.

    Raises:
      ValueError: a dimension is negative, or there are more than ``LARGEST`` elements.
    """
    shape = tuple(size if jax.export.is_symbolic_dim(size) else int(size) for size in shape)
    numbers = [size for size in shape if isinstance(size, int)]
    if min(numbers, default=0) < 0:
        raise ValueError(f"shape: got {shape}, wanted no negative dimension")
    if math.prod(numbers) > LARGEST:
        raise ValueError(f"shape: got {shape}, wanted at most {LARGEST} elements")
    return shape


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """Returns an axis as a nonnegative index.

    Raises:
      ValueError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"{name}: got {axis}, wanted -{rank} to {rank - 1}")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """Returns axes as nonnegative indices.

    Raises:
      ValueError: there is no such axis, or one is named twice.
    """
    counted = tuple(axis_of(axis, rank, name) for axis in axes)
    if len(set(counted)) < len(counted):
        raise ValueError(f"{name}: got {tuple(axes)}, wanted each axis once")
    return counted


def first_place(function: Any, x: Value, axis: int) -> jax.Array:
    """Returns the indices that ``jax.lax.argmax`` (or ``argmin``) finds along an axis, as int32."""
    x, axis = jnp.asarray(x), axis_of(axis, np.ndim(x))
    if x.dtype.itemsize < 8:
        return function(x, axis, np.int32)
    # A jit outside the scope `wide` cannot lower argmax of 64-bit values.
    best = (jnp.max if function is jax.lax.argmax else jnp.min)(x, axis, keepdims=True)
    positions = jax.lax.broadcasted_iota(np.int32, x.shape, axis)
    return jnp.min(jnp.where((x == best) | jnp.isnan(x), positions, x.shape[axis]), axis)


def first_results(results: Sequence[Any], outputs: int) -> Any:
    """Returns the results for a node's outputs, which are not in a tuple if there is one."""
    return results[0] if outputs == 1 else tuple(results[:outputs])


def at_least_rank(name: str, value: Value, rank: int) -> None:
    """Checks the rank of an operand.

    Raises:
      ValueError: the rank is too low.
    """
    if np.ndim(value) < rank:
        raise ValueError(f"{name}: got shape {np.shape(value)}, wanted at least {rank} dimensions")
