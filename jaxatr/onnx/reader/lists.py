"""Long lists of an attribute, such as the nodes of a tree ensemble, as tensors.

Protobuf keeps 8 bytes for each number and 16 for each text, and Python's objects take more. Here
they become arrays before the message is parsed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.wire import BYTES, FIXED_32, VARINT, fields, prefix, read_field

LONG = 1 << 20
"""Attributes of fewer bytes stay as they are."""

_GRAPH, _NODE, _ATTRIBUTE, _TENSOR = 7, 1, 5, 5  # numbers of the fields that lead there
_FLOATS, _INTS, _STRINGS = 7, 8, 9
_KINDS = {_FLOATS: FIXED_32, _INTS: VARINT, _STRINGS: BYTES}
_CHUNK = 1 << 20  # bytes that are decoded at once


class _Run(NamedTuple):
    """Elements of a list that follow each other: the values and the place after them."""

    values: np.ndarray
    end: int


def compacted(model: bytes) -> list[bytes]:
    """Returns a model's bytes, in pieces, with the long lists of its nodes' attributes as tensors.

    An attribute of numbers gets them in its field ``t``. An attribute of strings keeps each
    different one once, and has their numbers in ``t``. A message that is malformed is returned as
    it is, for protobuf's own error. Changed pieces do not refer to ``model``, so that it can be
    freed before they are joined.
    """
    view = memoryview(model)
    try:
        pieces = list(_rewritten(view, (_GRAPH, _NODE, _ATTRIBUTE)))
    except ValueError:
        return [model]
    return list(map(bytes, pieces)) if len(pieces) > 1 else [model]


def _rewritten(view: memoryview, path: tuple[int, ...]) -> Iterator[memoryview | bytes]:
    """Yields the pieces of a message; a single one if nothing in it changes."""
    kept = 0
    for field in fields(view):
        if field.kind != BYTES or field.number != path[0] or field.end - field.body < LONG:
            continue
        part = view[field.body : field.end]
        inner = list(_rewritten(part, path[1:]) if path[1:] else _attribute(part))
        if len(inner) > 1:
            yield view[kept : field.begin]
            yield prefix(field.number, sum(map(len, inner)))
            yield from inner
            kept = field.end
    yield view[kept:]


def _attribute(view: memoryview) -> Iterator[memoryview | bytes]:
    """Yields the pieces of an attribute whose list is long."""
    others: list[memoryview | bytes] = []
    numbers: list[np.ndarray] = []
    texts: dict[bytes, int] = {}
    listed, split, at = None, False, 0
    while at < len(view):
        field = read_field(view, at)
        kind = _KINDS.get(field.number)
        if kind is None and field.number != _TENSOR:
            split = bool(numbers)
            others.append(view[field.begin : field.end])
            at = field.end
            continue
        if field.kind != kind or split or listed not in (None, field.number):
            yield view  # packed, in several parts, or two values
            return
        listed = field.number
        if listed == _FLOATS:
            run = _floats(view, at)
        elif listed == _INTS:
            run = _ints(view, at)
        else:
            run = _codes(view, at, texts)
        numbers.append(run.values)
        at = run.end
    if not numbers:
        yield view
        return
    yield from others
    for text in texts:
        yield prefix(_STRINGS, len(text)) + text
    tensor = onnx.numpy_helper.from_array(np.concatenate(numbers)).SerializeToString()
    yield prefix(_TENSOR, len(tensor))
    yield tensor


def _floats(view: memoryview, at: int) -> _Run:
    """Decodes elements of 32 bits: a tag of one byte and four bytes each."""
    count = min(len(view) - at, _CHUNK) // 5
    found = np.frombuffer(view, np.dtype([("tag", "u1"), ("value", "<f4")]), count, at)
    count = _alike(found["tag"] == _FLOATS << 3 | FIXED_32)
    return _Run(found["value"][:count].copy(), at + 5 * count)


def _ints(view: memoryview, at: int) -> _Run:
    """Decodes elements of seven bits a byte, the lowest first; only the last byte is below 128."""
    found = np.frombuffer(view, np.uint8, min(len(view) - at, _CHUNK), at)
    ends = np.flatnonzero(found < 128)
    ends = ends[: len(ends) // 2 * 2].reshape(-1, 2)  # of a tag, which is one byte, and a number
    tags, ends = ends.T
    follows = np.append(0, ends[:-1] + 1)
    count = _alike((tags == follows) & (found[tags] == _INTS << 3 | VARINT))
    tags, ends = tags[:count], ends[:count]
    lengths = ends - tags
    if (lengths > 10).any():
        raise ValueError("model: the bytes end within a number")
    values = np.zeros(count, np.uint64)
    for place in range(lengths.max(initial=0)):
        there = lengths > place
        bits = found[tags[there] + 1 + place].astype(np.uint64) & np.uint64(127)
        values[there] |= bits << np.uint64(7 * place)
    signed = values.view(np.int64)
    return _Run(_narrow(signed), at + int(ends[-1]) + 1)


def _codes(view: memoryview, at: int, texts: dict[bytes, int]) -> _Run:
    """Decodes texts to their numbers among the different ones, which are added to ``texts``."""
    data = bytes(view[at : at + _CHUNK])
    tag, codes, place = _STRINGS << 3 | BYTES, [], 0
    while place + 1 < len(data) and data[place] == tag:
        body, end = place + 2, place + 2 + data[place + 1]
        if data[place + 1] > 127:  # the length has more bytes
            field = read_field(view, at + place)
            body, end = field.body - at, field.end - at
        if end > len(data):
            break
        codes.append(texts.setdefault(data[body:end], len(texts)))
        place = end
    if not codes:  # a text that is longer than a chunk
        field = read_field(view, at)
        codes.append(texts.setdefault(bytes(view[field.body : field.end]), len(texts)))
        place = field.end - at
    return _Run(_narrow(np.array(codes)), at + place)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Returns integers in the smallest type that holds them."""
    lowest = min(int(values.min()), -1 - int(values.max()))
    return values.astype(np.min_scalar_type(lowest))


def _alike(right: np.ndarray) -> int:
    """Returns the number of elements before the first that is not right."""
    count = len(right) if right.all() else int(np.argmin(right))
    if not count:
        raise ValueError("model: a tag has more bytes than it needs")
    return count
