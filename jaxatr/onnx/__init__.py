"""ONNX models in JAX: load, run, differentiate, train, and write as source code or as a file.

Reading and writing files needs the package ``onnx``; :mod:`jaxatr.onnx.ops` does not.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxatr.onnx import ops
from jaxatr.onnx.ops.registry import register

if TYPE_CHECKING:
    from jaxatr.onnx.codegen.generator import generate
    from jaxatr.onnx.codegen.weights import load_weights
    from jaxatr.onnx.reader.inspection import Layer, layers
    from jaxatr.onnx.reader.model import OnnxModel, load
    from jaxatr.onnx.writer.exporter import export
    from jaxatr.onnx.writer.replacement import replace_weights
    from jaxatr.onnx.writer.trace import FreeAxis

__all__ = [
    "FreeAxis",
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

_HOMES = {
    "FreeAxis": "writer.trace",
    "Layer": "reader.inspection",
    "OnnxModel": "reader.model",
    "export": "writer.exporter",
    "generate": "codegen.generator",
    "layers": "reader.inspection",
    "load": "reader.model",
    "load_weights": "codegen.weights",
    "replace_weights": "writer.replacement",
}


def __getattr__(name: str) -> Any:
    """Imports an attribute on first access, so that the package ``onnx`` is loaded late."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
