"""ONNX's operators, by family, as functions of arrays.

Each takes its operator's inputs in order and its attributes by name, and returns an array, or a
tuple where there are several results. Where all operands are NumPy's, what is about shapes stays
NumPy's: it is known while jit traces. 64-bit types need the scope :func:`wide`.

Every module of this folder registers its own operators (:func:`~jaxatr.onnx.ops.registry.register`)
and their functions are found by it: ``ops.conv`` is the function registered for ``Conv``.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from jaxatr.onnx.ops import registry
from jaxatr.onnx.ops.precision import wide as wide
from jaxatr.resolve import nearest


def _functions() -> dict[str, Callable[..., Any]]:
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    return {operator.function.__name__: operator.function for operator in registry.operators()}


globals().update(_functions())


def __getattr__(name: str) -> Callable[..., Any]:
    """Names the nearest function where there is none of a name."""
    raise AttributeError(f"{__name__} has no function {name!r}{nearest(name, globals())}")
