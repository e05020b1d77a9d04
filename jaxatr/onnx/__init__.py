"""ONNX models in JAX: load, run, differentiate, train, and write as source code or as a file.

Reading and writing files needs the package ``onnx``; :mod:`jaxatr.onnx.ops` does not.
"""

from typing import TYPE_CHECKING

from jaxatr import lazy

if TYPE_CHECKING:
    from jaxatr.onnx import ops
    from jaxatr.onnx.codegen.generator import generate
    from jaxatr.onnx.codegen.weights import load_weights
    from jaxatr.onnx.ops.registry import register
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

__getattr__ = lazy.attributes(
    __name__,
    {
        "FreeAxis": "jaxatr.onnx.writer.trace",
        "Layer": "jaxatr.onnx.reader.inspection",
        "OnnxModel": "jaxatr.onnx.reader.model",
        "export": "jaxatr.onnx.writer.exporter",
        "generate": "jaxatr.onnx.codegen.generator",
        "layers": "jaxatr.onnx.reader.inspection",
        "load": "jaxatr.onnx.reader.model",
        "load_weights": "jaxatr.onnx.codegen.weights",
        "ops": "jaxatr.onnx.ops:",
        "register": "jaxatr.onnx.ops.registry",
        "replace_weights": "jaxatr.onnx.writer.replacement",
    },
)
