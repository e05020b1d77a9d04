"""What operators share: known values, the choice between NumPy and jax.numpy, sizes."""

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
"""Elements that may be computed while a model is loaded; what is larger is left to its run."""

_folding: ContextVar[bool] = ContextVar("folding", default=False)


class TooLargeToFold(ValueError):
    """What is computed while a model is loaded would be large."""


@contextmanager
def folding() -> Iterator[None]:
    """Makes :func:`sized` stop what is too large to be computed while a model is loaded."""
    token = _folding.set(True)
    try:
        yield
    finally:
        _folding.reset(token)


def is_known(*values: Any) -> bool:
    """Returns whether no value is jax's: all can be computed with now."""
    return not any(isinstance(value, jax.Array) for value in values)


def library(*values: Any) -> ModuleType:
    """Returns NumPy where all values are known, else jax.numpy."""
    return np if is_known(*values) else jnp


def known(name: str, value: Any) -> np.ndarray:
    """Returns the value of an operand that decides a shape.

    Raises:
      ValueError: the value is traced.
    """
    if isinstance(value, Tracer):
        raise ValueError(
            f"{name}: its value must be known here, and under jit (or another transformation) it "
            f"is not; got {value.aval}. Make it a constant of the model, or call apply without jit"
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


def sized(shape: Iterable[int], *, filled: bool = True) -> tuple[int, ...]:
    """Returns a shape, once it is seen to be a sane one.

    Args:
      shape: of a result that a file or an operand decides.
      filled: whether memory is needed for every element.

    Raises:
      ValueError: a dimension is negative, or there are more than ``LARGEST`` elements.
    """
    shape = tuple(int(size) for size in shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape: got {shape}, wanted no negative dimension")
    if math.prod(shape) > LARGEST:
        raise ValueError(f"shape: got {shape}, wanted at most {LARGEST} elements")
    if filled and _folding.get() and math.prod(shape) > FOLDED:
        raise TooLargeToFold(f"shape: got {shape}")
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
    """Returns where along an axis ``jax.lax.argmax`` (or ``argmin``) finds its value, in 32 bits.

    With 64 it cannot be lowered by a jit outside of the scope that keeps them.
    """
    return function(jnp.asarray(x), axis_of(axis, np.ndim(x)), np.int32)


def at_least_rank(name: str, value: Value, rank: int) -> None:
    """Checks the rank of an operand.

    Raises:
      ValueError: it is too low.
    """
    if np.ndim(value) < rank:
        raise ValueError(f"{name}: got shape {np.shape(value)}, wanted {rank} dimensions or more")
