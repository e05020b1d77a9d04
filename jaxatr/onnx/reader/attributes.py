"""Converts node attributes and ``Constant`` nodes to Python values."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.onnx.ops.tree_lists import CodedTexts
from jaxatr.onnx.package import onnx
from jaxatr.onnx.reader.program import NodeError
from jaxatr.onnx.reader.tensors import to_array, to_dense


def plain(attribute: Any, name: str, folder: Path | None = None) -> Any:
    """Returns an attribute's value: a number, a string, a tuple of either, or an array.

    Args:
      attribute: the ``AttributeProto``.
      name: name of its node, for error messages.
      folder: folder of the model's file, or None.

    Raises:
      ValueError: the attribute has a type that no operator takes, or its tensor is malformed.
    """
    kinds = onnx.AttributeProto
    if attribute.ref_attr_name:
        raise NodeError(
            f"node {name!r}: {attribute.name!r} refers to a function's attribute outside a function"
        )
    if attribute.type == kinds.FLOAT:
        return shortest(attribute.f)
    if attribute.type == kinds.INT:
        return attribute.i
    if attribute.type == kinds.STRING:
        return attribute.s.decode("utf-8", "surrogateescape")
    if attribute.type == kinds.FLOATS:
        return tuple(map(shortest, _listed(attribute, attribute.floats)))
    if attribute.type == kinds.INTS:
        return tuple(_listed(attribute, attribute.ints))
    if attribute.type == kinds.STRINGS:
        texts = _texts(attribute)
        return tuple(map(texts.__getitem__, _listed(attribute, range(len(texts)))))
    if attribute.type == kinds.TENSOR:
        return to_array(attribute.t, folder)
    if attribute.type == kinds.SPARSE_TENSOR:
        return to_dense(attribute.sparse_tensor, folder)
    if attribute.type == kinds.TYPE_PROTO:
        return attribute.tp
    raise NodeError(f"node {name!r}: attribute {attribute.name!r} has type {attribute.type}")


class LongList:
    """The numbers of a long list, integers in the smallest type, for ``np.asarray``.

    They are copied from the proto at each use, so that a node's lists are not all in memory twice.
    """

    def __init__(self, tensor: Any):
        """Keeps the ``TensorProto``."""
        self._tensor = tensor

    def __len__(self) -> int:
        """Returns how many numbers there are."""
        return math.prod(self._tensor.dims)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the numbers."""
        return np.array(to_array(self._tensor).reshape(-1), dtype, copy=copy)


def numbers(attribute: Any, name: str, folder: Path | None = None) -> Any:
    """Returns an attribute's value as :func:`plain` does, but a long list in less memory.

    Numbers are an array or a :class:`LongList`. Texts of a long list are :class:`.CodedTexts`.
    """
    kinds = onnx.AttributeProto
    if attribute.type == kinds.STRINGS and attribute.HasField("t"):
        return CodedTexts(_texts(attribute), to_array(attribute.t))
    if attribute.type in (kinds.FLOATS, kinds.INTS) and not attribute.ref_attr_name:
        if attribute.HasField("t"):
            return LongList(attribute.t)
        if attribute.type == kinds.FLOATS:
            return np.array(attribute.floats, np.float32)
        return np.array(attribute.ints, np.int64)
    return plain(attribute, name, folder)


def _texts(attribute: Any) -> tuple[str, ...]:
    return tuple(text.decode("utf-8", "surrogateescape") for text in attribute.strings)


def _listed(attribute: Any, given: Sequence[Any]) -> Sequence[Any]:
    """Returns the numbers of a list, from the tensor of a long one (:mod:`.lists`)."""
    return to_array(attribute.t).tolist() if attribute.HasField("t") else given


def shortest(number: float) -> float:
    """Returns the shortest decimal number with the same value in float32, ONNX's attribute type.

    >>> shortest(9.999999747378752e-06)
    1e-05
    """
    return float(str(np.float32(number)))


def constant(node: Any, name: str, folder: Path | None = None) -> np.ndarray:
    """Returns the value of a ``Constant`` node.

    Args:
      node: the ``NodeProto``.
      name: name of the node, for error messages.
      folder: folder of the model's file, or None.

    Raises:
      ValueError: the node does not have exactly one value.
    """
    if len(node.attribute) != 1 or len(node.output) != 1:
        raise NodeError(f"node {name!r} (Constant): wanted one attribute and one output")
    attribute = node.attribute[0]
    value = plain(attribute, name, folder)
    if attribute.name in ("value", "sparse_value"):
        return value
    types = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64}
    types |= {"value_ints": np.int64, "value_string": object, "value_strings": object}
    if attribute.name not in types:
        raise NodeError(f"node {name!r} (Constant): it has no attribute {attribute.name!r}")
    if attribute.name == "value_string":
        value = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return np.array(value, types[attribute.name])
