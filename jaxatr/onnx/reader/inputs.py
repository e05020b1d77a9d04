"""Converts inputs to the types that a model declares, and results to jax arrays."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxatr.jax_internals import Tracer
from jaxatr.onnx.ops.dtypes import dtype_of
from jaxatr.onnx.reader.narrowing import beyond, narrows
from jaxatr.onnx.reader.program import ValueInfo

_identity = jax.jit(lambda value: value)
_seen: set[tuple[tuple[int, ...], np.dtype]] = set()  # forms of the arrays that _put has got


def _put(value: np.ndarray) -> jax.Array:
    """Converts an array to a jax array.

    A call of a program does it in an eighth of the time, but must be compiled for each form. That
    is for forms that come again.
    """
    form = value.shape, value.dtype
    if form in _seen:
        return _identity(value)
    _seen.add(form)
    return jax.device_put(value)


def own(value: Any, wanted: ValueInfo | None = None) -> Any:
    """Copies the NumPy arrays in a value, in the machine's byte order; lists for a tensor as well.

    jax reads them while it computes, after a call has returned. A caller that fills one buffer
    again and again would change the inputs of earlier calls. The bytes of arrays in the other order
    would be taken for other numbers, if an array of that shape and type came before.
    """
    if wanted is not None and wanted.dtype is not None:
        value = np.asarray(value) if isinstance(value, (list, tuple)) else value
        _check_range(wanted.name, value, dtype_of(wanted.dtype))

    def copied(leaf: Any) -> Any:
        native = isinstance(leaf, np.ndarray) and leaf.dtype.newbyteorder("=")
        return leaf.astype(native, order="C") if native else leaf

    return jax.tree.map(copied, value)


def _check_range(name: str, value: Any, dtype: np.dtype) -> None:
    """Checks that integers do not wrap around in the type that the model declares."""
    given = getattr(value, "dtype", None)
    if given is None or given.kind not in "iu" or isinstance(value, Tracer):
        return
    if given.kind == dtype.kind and given.itemsize > dtype.itemsize:
        array, limits = np.asarray(value), np.iinfo(dtype)
        if (outside := array[(array < limits.min) | (array > limits.max)]).size:
            raise ValueError(f"input {name!r}: {outside[0]} does not fit into {dtype}")


def on_device(value: Any) -> Any:
    """Converts the NumPy arrays in a value to jax arrays, except those of strings and objects."""
    if isinstance(value, (list, tuple)):
        return [on_device(item) for item in value]
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OUST":
        # Unlike jnp.asarray, it compiles nothing. The view is new, since jax recognises a constant
        # by its identity and keeps the precision of its first trace.
        return jax.device_put(value[...])
    return value


def as_declared(value: Any, wanted: ValueInfo) -> Any:
    """Converts an input to the type that the model declares.

    Raises:
      ValueError: the rank, a fixed dimension or the kind of type (float, integer, …) differs, or
        an integer does not fit into the type.
    """
    if wanted.dtype is None or value is None or isinstance(value, Mapping):
        return value if isinstance(value, Mapping) else on_device(own(value))
    if wanted.dtype == "str":
        return np.asarray(value, object)
    if not isinstance(value, jax.Array):
        value = own(np.asarray(value))
        if narrows() and (large := beyond(value)).size:
            raise ValueError(
                f"input {wanted.name!r}: {large.flat[0]} does not fit into 32 bits, which jax "
                "keeps here; keep 64 bits: apply(..., keep_64_bit=True)"
            )
    _check_range(wanted.name, value, dtype_of(wanted.dtype))
    array = value if isinstance(value, jax.Array) else _put(value)
    shape, dtype = wanted.shape, dtype_of(wanted.dtype)
    if shape is not None and (
        len(shape) != array.ndim
        or any(isinstance(w, int) and w != g for w, g in zip(shape, array.shape, strict=True))
    ):
        raise ValueError(f"input {wanted.name!r}: got shape {array.shape}, wanted {shape}")
    if array.dtype == dtype:
        return array
    if array.dtype.kind != dtype.kind:
        raise ValueError(f"input {wanted.name!r}: got {array.dtype}, wanted {wanted.dtype}")
    return array.astype(dtype)
