"""Reads a model's file without its weights, which are never read from disk.

Tensor data have a length prefix and can be skipped.
"""

import mmap
import os

from jaxatr.onnx.reader.wire import BYTES, fields, prefix

KEPT = 1024
"""Tensors of up to this many bytes keep their values, which may be shapes or axes."""

# The fields of each message that lead to tensors: number to message (onnx.proto).
PARTS = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
VALUES = frozenset((4, 5, 6, 7, 9, 10, 11))  # the fields of a tensor that hold its elements
DEEPEST = 64


def without_weights(model: str | os.PathLike | bytes) -> bytes:
    """Returns a model's bytes without the elements of its larger tensors.

    Args:
      model: path of a file, or its bytes.

    Raises:
      ValueError: the bytes are not a protobuf message.
    """
    if isinstance(model, bytes):
        return _stripped(memoryview(model), "model", 0)
    if os.path.getsize(model) == 0:
        return b""
    with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            return _stripped(view, "model", 0)
        finally:
            view.release()


def _stripped(view: memoryview, message: str, depth: int) -> bytes:
    if depth > DEEPEST:
        raise ValueError(f"model: messages nested more than {DEEPEST} deep")
    parts, kept = PARTS[message], bytearray()
    for field in fields(view):
        if field.kind == BYTES and field.number in parts:
            # An unreleased view would keep the file open on an error.
            with view[field.body : field.end] as part:
                inner = _stripped(part, parts[field.number], depth + 1)
            kept += prefix(field.number, len(inner)) + inner
        elif not (message == "tensor" and field.number in VALUES and field.end - field.body > KEPT):
            kept += view[field.begin : field.end]
    return bytes(kept)
