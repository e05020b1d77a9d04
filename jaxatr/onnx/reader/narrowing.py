"""Known 64-bit numbers where jax narrows to 32 bits: saturated if that is exact, else refused.

jax would keep the low 32 bits, so that INT64_MAX, with which exporters say "no limit", becomes −1.
"""

from typing import Any

import jax
import numpy as np

from jaxatr.onnx.ops.registry import Operator
from jaxatr.onnx.ops.values import FOLDED, is_known

_EXTREMES = (
    np.iinfo(np.int64).min,
    np.iinfo(np.int64).max,
    np.iinfo(np.uint64).max,
)
"""Numbers that stand for "no limit"; narrowed, they stand for the same."""

_COMPARED = frozenset("Greater GreaterOrEqual Less LessOrEqual".split())
"""Operators whose result depends only on the order of their operands."""

_KEPT = frozenset(
    "ArgMax ArgMin Clip Compress Concat Equal Expand Flatten Gather GatherElements "
    "GatherND Identity If Loop Max Min OneHot Pad ReduceMax ReduceMin Reshape Scan Scatter "
    "ScatterElements ScatterND Slice Split Squeeze Tile TopK Transpose Unsqueeze Where".split()
)
"""Operators that move their operands' numbers, or choose from them by their order."""

_ABOVE = frozenset((("Min", 0), ("Min", 1), ("Clip", 2)))
_BELOW = frozenset((("Max", 0), ("Max", 1), ("Clip", 1)))
"""Operators and positions where a number above, or below, all 32-bit numbers changes nothing."""


def narrows() -> bool:
    """Returns whether jax narrows 64-bit numbers here."""
    return jax.dtypes.canonicalize_dtype(np.int64) != np.int64


def arguments(operator: Operator, values: list[Any]) -> list[Any]:
    """Returns an operator's operands, with known numbers beyond 32 bits saturated.

    Raises:
      ValueError: such a number would change the result.
    """
    sizes = sum(np.size(value) for value in values if isinstance(value, np.ndarray))
    if operator.folds and is_known(*values) and sizes <= FOLDED:
        return values  # NumPy computes the result
    static = set(operator.positions(operator.static, len(values)))
    return [
        value if position in static else _fitted(value, operator, position)
        for position, value in enumerate(values)
    ]


def check_labels(operator: Operator, given: dict[str, Any]) -> None:
    """Checks the attributes of an operator of ``ai.onnx.ml``, where integers are keys or labels.

    Raises:
      ValueError: one has more than 32 bits.
    """
    if operator.domain not in ("ai.onnx.ml", "jaxatr") or operator.host:
        return
    for key, value in given.items():
        if isinstance(value, np.ndarray) or _whole(value):
            _fitted(np.asarray(value), operator, key)


def _whole(value: Any) -> bool:
    numbers = value if isinstance(value, tuple) else (value,)
    return bool(numbers) and all(isinstance(number, int) for number in numbers)


def checked(value: Any, name: str) -> Any:
    """Returns a known result in the same way, for a graph to pass on.

    Raises:
      ValueError: a number in it has more than 32 bits.
    """
    return _fitted(value, None, name)


def beyond(value: np.ndarray) -> np.ndarray:
    """Returns the integers in an array that 32 bits cannot hold."""
    if value.dtype not in (np.int64, np.uint64):
        return np.zeros(0, value.dtype)
    limits = _limits(value)
    return value[(value < limits.min) | (value > limits.max)]


def _limits(value: np.ndarray) -> np.iinfo:
    return np.iinfo(np.int32 if value.dtype == np.int64 else np.uint32)


def _fitted(value: Any, operator: Operator | None, place: int | str) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.float64:  # a number that was finite stays finite, as in a mask
        most = np.finfo(np.float32).max
        return np.where(np.isfinite(value), np.clip(value, -most, most), value)
    large = beyond(value)
    if not large.size:
        return value
    name = "" if operator is None else operator.name
    order = (name, place)
    exact = (
        name in _COMPARED
        or (operator is None or name in _KEPT)
        and np.isin(large, _EXTREMES).all()
        or (order in _ABOVE and (large > 0).all())
        or (order in _BELOW and (large < 0).all())
    )
    if not exact:
        where = f"operand {place}" if isinstance(place, int) else repr(place)
        raise ValueError(
            f"{where}: {large.flat[0]} does not fit into 32 bits, which jax keeps here; keep 64 "
            "bits: apply(..., keep_64_bit=True), or jax.enable_x64 where the function is jitted"
        )
    limits = _limits(value)
    return np.clip(value, limits.min, limits.max)
