"""ONNX's operators as functions of arrays.

Each function takes its operator's inputs in order and its attributes by name, and returns an
array, or a tuple for several results. Operators that compute shapes stay in NumPy if all operands
are NumPy arrays, so that the values are known while jit traces. 64-bit types are kept only in the
scope :func:`wide`.

Every module of this folder registers its operators with
:func:`~jaxatr.onnx.ops.registry.register`, which also makes the functions available here:
``ops.conv`` is the function registered for ``Conv``.
"""

from collections.abc import Callable
from typing import Any

from jaxatr import parts
from jaxatr.onnx.ops import registry
from jaxatr.onnx.ops.precision import wide as wide
from jaxatr.resolve import nearest


def _functions() -> dict[str, Callable[..., Any]]:
    parts.modules(__name__)
    return {operator.function.__name__: operator.function for operator in registry.operators()}


globals().update(_functions())


def __getattr__(name: str) -> Callable[..., Any]:
    """Raises an error that suggests the function with the nearest name."""
    raise AttributeError(f"{__name__} has no function {name!r}{nearest(name, globals())}")
