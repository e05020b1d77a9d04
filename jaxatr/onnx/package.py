"""Imports the package ``onnx``, or fails with an error that names the extra."""

try:
    import onnx
    import onnx.checker
    import onnx.defs
    import onnx.helper
    import onnx.shape_inference
except ModuleNotFoundError as error:
    if error.name != "onnx":
        raise
    raise ModuleNotFoundError(
        "reading and writing ONNX needs the package onnx: pip install 'jaxatr[onnx]'", name="onnx"
    ) from error

PRODUCER = "jaxatr"
"""Producer name in the files that this package writes."""

__all__ = ["PRODUCER", "onnx"]
