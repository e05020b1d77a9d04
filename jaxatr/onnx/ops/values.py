"""Helpers of all operators: known values, the choice between NumPy and jax.numpy, sizes."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

# A tensor: NumPy's where its value is known, else jax's. NumPy's arithmetic makes scalars of arrays
# without an axis, which do all that is asked of them here, but a type checker does not know it.
if TYPE_CHECKING:
    Value: TypeAlias = jax.Array | np.ndarray
else:
    Value = jax.Array | np.ndarray | np.generic

Known: TypeAlias = jax.Array | np.ndarray | Sequence[int] | Sequence[float] | int | float
"""An operand whose value decides a shape: Python's numbers do as well."""

LARGEST = 1 << 28
"""Elements that NumPy may be asked for at once, by a size that a file or an operand states."""

FOLDED = 1 << 22
"""Elements that NumPy computes with; what is larger is left to jax, and to the model's run."""

_folding: ContextVar[int | None] = ContextVar("folding", default=None)


class TooLargeToFold(ValueError):
    """A result that would be computed while a model is loaded is too large."""


@contextmanager
def folding(most: int) -> Iterator[None]:
    """Makes :func:`library` stop what is too large to be computed while a model is loaded.

    Args:
      most: elements of an array.
    """
    token = _folding.set(most)
    try:
        yield
    finally:
        _folding.reset(token)


def is_known(*values: Any) -> bool:
    """Returns whether no value is jax's: all can be computed with now."""
    return not any(isinstance(value, jax.Array) for value in values)


def library(*values: Any, shape: Iterable[int] | None = None) -> ModuleType:
    """Returns NumPy where all values are known and not large, else jax.numpy.

    Args:
      *values: operands.
      shape: of the result, where it can be larger than an operand.

    Raises:
      ValueError: all is known, and the result would be absurdly large.
    """
    if not is_known(*values):
        return jnp
    count = max((np.size(value) for value in values), default=0)
    if shape is not None:
        count = max(count, math.prod(sized(shape)))
    most = _folding.get()
    if count <= (FOLDED if most is None else min(most, FOLDED)):
        return np
    if most is not None:
        raise TooLargeToFold(f"got {count} elements")
    return jnp


def known(name: str, value: Any) -> np.ndarray:
    """Returns the value of an operand that decides a shape.

    Raises:
      ValueError: the value is traced.
    """
    if isinstance(value, Tracer):
        raise ValueError(
            f"{name}: its value must be known here, and under jit (or another transformation) it "
            f"is not; got {value.aval}. Make it a constant of the model, or compute "
            "it without compiling: model(..., eager=True), or apply without jit"
        )
    return np.asarray(value)


def known_ints(name: str, value: Any) -> tuple[int, ...]:
    """Returns the numbers of a one-dimensional operand (or of one number) that decides a shape.

    Raises:
      ValueError: the value is traced, or no list of integers.
    """
    array = known(name, value)
    if array.ndim > 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name}: got {array.dtype} {array.shape}, wanted a list of integers")
    return tuple(int(number) for number in array.reshape(-1))


def known_int(name: str, value: Any) -> int:
    """Returns an operand of one integer.

    Raises:
      ValueError: the value is traced, or not one integer.
    """
    numbers = known_ints(name, value)
    if len(numbers) != 1:
        raise ValueError(f"{name}: got {len(numbers)} numbers, wanted one")
    return numbers[0]


def sized(shape: Iterable[int]) -> tuple[int, ...]:
    """Returns a shape that a file or an operand decides, once it is seen to be a sane one.

    Raises:
      ValueError: a dimension is negative, or there are more than ``LARGEST`` elements.
    """
    shape = tuple(int(size) for size in shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape: got {shape}, wanted no negative dimension")
    if math.prod(shape) > LARGEST:
        raise ValueError(f"shape: got {shape}, wanted at most {LARGEST} elements")
    return shape


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """Returns an axis counted from the front.

    Raises:
      ValueError: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"{name}: got {axis}, wanted -{rank} to {rank - 1}")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """Returns axes counted from the front.

    Raises:
      ValueError: there is no such axis, or one is named twice.
    """
    found = tuple(axis_of(axis, rank, name) for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"{name}: got {tuple(axes)}, wanted each axis once")
    return found


def first_place(function: Any, x: Value, axis: int) -> jax.Array:
    """Returns where along an axis ``jax.lax.argmax`` (or ``argmin``) finds its value, as int32."""
    x, axis = jnp.asarray(x), axis_of(axis, np.ndim(x))
    if x.dtype.itemsize < 8:
        return function(x, axis, np.int32)
    # Of 64 bits it cannot be lowered by a jit outside of the scope that keeps them.
    best = (jnp.max if function is jax.lax.argmax else jnp.min)(x, axis, keepdims=True)
    positions = jax.lax.broadcasted_iota(np.int32, x.shape, axis)
    return jnp.min(jnp.where((x == best) | jnp.isnan(x), positions, x.shape[axis]), axis)


def at_least_rank(name: str, value: Value, rank: int) -> None:
    """Checks the rank of an operand.

    Raises:
      ValueError: it is too low.
    """
    if np.ndim(value) < rank:
        raise ValueError(f"{name}: got shape {np.shape(value)}, wanted {rank} dimensions or more")
