"""ONNX models in and out: read, run, differentiate, train, write as source code or as a file.

The package ``onnx`` is asked for by what reads or writes files, not by :mod:`jaxatr.onnx.ops`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxatr.onnx import ops
from jaxatr.onnx.registry import register

if TYPE_CHECKING:
    from jaxatr.onnx.exporter import export
    from jaxatr.onnx.exporting.weights import replace_weights
    from jaxatr.onnx.generator import generate
    from jaxatr.onnx.listing import Layer, layers
    from jaxatr.onnx.model import OnnxModel, load
    from jaxatr.onnx.weights import load_weights

__all__ = [
    "Layer",
    "OnnxModel",
    "export",
    "generate",
    "layers",
    "load",
    "load_weights",
    "ops",
    "register",
    "replace_weights",
]

# No module is called as a function is: importing it would put it in the function's place.
_HOMES = {"Layer": "listing", "OnnxModel": "model", "layers": "listing", "load": "model"}
_HOMES |= {"generate": "generator", "load_weights": "weights"}
_HOMES |= {"export": "exporter", "replace_weights": "exporting.weights"}


def __getattr__(name: str) -> Any:
    """Imports what needs the package ``onnx`` when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
