"""ONNX models in and out: read, run, differentiate, train, write as source code or as a file.

The package ``onnx`` is asked for by what reads or writes files, not by :mod:`jaxatr.onnx.ops`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxatr.onnx import ops
from jaxatr.onnx.registry import register

if TYPE_CHECKING:
    from jaxatr.onnx.export import export
    from jaxatr.onnx.exporting.weights import replace_weights
    from jaxatr.onnx.generate import generate
    from jaxatr.onnx.layers import Layer, layers
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

_HOMES = {"Layer": "layers", "OnnxModel": "model", "layers": "layers", "load": "model"}
_HOMES |= {"generate": "generate", "load_weights": "weights"}
_HOMES |= {"export": "export", "replace_weights": "exporting.weights"}


def __getattr__(name: str) -> Any:
    """Imports what needs the package ``onnx`` when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # over the submodule of the same name
    return value
