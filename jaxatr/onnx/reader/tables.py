"""Attributes that become arrays of the model, and the operators that take them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxatr.onnx.ops.registry import Operator, operators
from jaxatr.onnx.ops.trees import Tabled
from jaxatr.onnx.reader.program import NodeError


def own_operator(function: Callable[..., Any]) -> Operator:
    """Returns the operator of a function that files do not name."""
    return next(one for one in operators("jaxatr") if one.function is function)


def in_tables(
    kind: str, function: Tabled, node: str, attributes: dict[str, Any]
) -> tuple[Operator, list[tuple[str, np.ndarray | None]], dict[str, Any]]:
    """Returns the operator that takes tables instead of attributes, the tables and keywords.

    A table that is absent is None, except at the end, where it is left out.
    """
    try:
        arrays, keywords = function.maker(**attributes)
    except ValueError as error:
        raise NodeError(f"node {node!r} ({kind}): {error}") from error
    operator = replace(own_operator(function.form), name=kind)
    given = [(key, arrays.get(key)) for key in operator.operands[1:]]
    while given[-1][1] is None:
        given.pop()
    return operator, given, keywords
