"""Reads a model's file without its weights, which are never read from disk.

In protobuf's wire format a message is a list of fields, each a tag (number and kind) and a value.
Tensor data have a length prefix and can be skipped.
"""

import mmap
import os
from typing import Any

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
    parts, kept, at = PARTS[message], bytearray(), 0
    while at < len(view):
        begin = at
        tag, at = _varint(view, at)
        number, kind = tag >> 3, tag & 7
        body = at
        if kind == 0:
            _, at = _varint(view, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            length, body = _varint(view, at)
            at = body + length
        else:
            raise ValueError(f"model: the bytes are not an ONNX model (field of kind {kind})")
        if at > len(view):
            raise ValueError("model: the bytes end within a field")
        if kind == 2 and number in parts:
            with view[body:at] as part:  # an unreleased view would keep the file open on an error
                inner = _stripped(part, parts[number], depth + 1)
            kept += _number(tag) + _number(len(inner)) + inner
        elif not (message == "tensor" and number in VALUES and at - body > KEPT):
            kept += view[begin:at]
    return bytes(kept)


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(view) or shift > 63:
            raise ValueError("model: the bytes end within a number")
        byte: Any = view[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _number(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
