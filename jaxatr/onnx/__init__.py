"""Models in the exchange format ONNX; needs the extra: ``pip install 'jaxatr[onnx]'``."""

try:
    import onnx as _  # noqa: F401
except ImportError as error:
    raise ImportError("jaxatr.onnx needs the package onnx: pip install 'jaxatr[onnx]'") from error

from jaxatr.onnx.export import export
from jaxatr.onnx.exporting.weights import replace_weights

__all__ = ["export", "replace_weights"]
