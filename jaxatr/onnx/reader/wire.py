"""Protobuf's wire format: a message is a list of fields, each a tag and a value."""

from collections.abc import Iterator
from typing import Any, NamedTuple

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5
"""Kinds of fields; those of other messages and of texts are ``BYTES``."""


class Field(NamedTuple):
    """A field of a message, by its places in the message.

    Attributes:
      number: number of the field.
      kind: kind of its value.
      begin: first byte of its tag.
      body: first byte of its value, after the length of ``BYTES``.
      end: first byte after it.
    """

    number: int
    kind: int
    begin: int
    body: int
    end: int


def fields(view: memoryview) -> Iterator[Field]:
    """Yields the fields of a message.

    Raises:
      ValueError: the bytes are not a message.
    """
    at = 0
    while at < len(view):
        field = read_field(view, at)
        yield field
        at = field.end


def read_field(view: memoryview, begin: int) -> Field:
    """Returns the field at a place of a message.

    Raises:
      ValueError: the bytes are not a message.
    """
    tag, body = _varint(view, begin)
    number, kind = tag >> 3, tag & 7
    if kind == VARINT:
        _, end = _varint(view, body)
    elif kind == FIXED_64:
        end = body + 8
    elif kind == FIXED_32:
        end = body + 4
    elif kind == BYTES:
        length, body = _varint(view, body)
        end = body + length
    else:
        raise ValueError(f"model: the bytes are not an ONNX model (field of kind {kind})")
    if end > len(view):
        raise ValueError("model: the bytes end within a field")
    return Field(number, kind, begin, body, end)


def prefix(number: int, length: int) -> bytes:
    """Returns the tag and the length before the value of a field of ``BYTES``."""
    return _encoded(number << 3 | BYTES) + _encoded(length)


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


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
