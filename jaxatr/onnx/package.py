"""The package ``onnx``, or an error that says how to get it."""

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
"""The name of this package in the files that it writes."""

__all__ = ["PRODUCER", "onnx"]
