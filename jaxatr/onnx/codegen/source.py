"""Expressions as source, broken into lines as ``ruff format`` breaks them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from jaxatr.onnx.codegen.names import quoted
from jaxatr.onnx.ops.dtypes import name_of

WIDTH = 100

PLAIN = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 "
    "complex128".split()
)
"""The types that NumPy itself has."""


@dataclass(frozen=True)
class Group:
    """A bracketed list, with what stands before it.

    Attributes:
      head: what stands before the bracket.
      items: in it.
      brackets: of what kind; a list or tuple without head is broken item by item.
      prefix: a keyword's ``name=``, before it all.
    """

    head: "Expression"
    items: tuple["Expression", ...]
    brackets: str = "()"
    prefix: str = ""


Expression: TypeAlias = str | Group


def call(head: Expression, *items: Expression, **keywords: Expression) -> Group:
    """Returns a call."""
    named = tuple(keyword(name, value) for name, value in keywords.items())
    return Group(head, (*items, *named))


def keyword(name: str, value: Expression) -> Expression:
    """Returns ``name=value``."""
    if isinstance(value, str):
        return f"{name}={value}"
    return Group(value.head, value.items, value.brackets, f"{name}=")


def flat(expression: Expression) -> str:
    """Returns an expression on one line."""
    if isinstance(expression, str):
        return expression
    inner = ", ".join(flat(item) for item in expression.items)
    if expression.brackets == "()" and not expression.head and len(expression.items) == 1:
        inner += ","
    first, last = expression.brackets
    return f"{expression.prefix}{flat(expression.head)}{first}{inner}{last}"


def lines(prefix: str, expression: Expression, indent: int, suffix: str = "") -> list[str]:
    """Returns the lines of ``prefix expression suffix``."""
    margin = " " * indent
    whole = margin + prefix + flat(expression) + suffix
    if len(whole) <= WIDTH or isinstance(expression, str) or not expression.items:
        return [whole]
    before = prefix + expression.prefix + flat(expression.head) + expression.brackets[0]
    if isinstance(expression.head, Group) and indent + len(before) > WIDTH:
        # The layer's own arguments are broken, not those that it is applied to.
        inner = ", ".join(flat(item) for item in expression.items)
        applied = f"{expression.brackets[0]}{inner}{expression.brackets[1]}"
        return lines(prefix + expression.prefix, expression.head, indent, applied + suffix)
    inner = margin + "    " + ", ".join(flat(item) for item in expression.items)
    after = margin + expression.brackets[1] + suffix
    if expression.head and len(inner) <= WIDTH:
        return [margin + before, inner, after]
    broken = [line for item in expression.items for line in lines("", item, indent + 4, ",")]
    return [margin + before, *broken, after]


def literal(value: Any) -> Expression:
    """Returns the source of a plain value of Python, or of a NumPy array.

    Raises:
      ValueError: the value is of another kind.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return array_literal(np.asarray(value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return number(value)
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return Group("", tuple(literal(item) for item in value), "()")
    raise ValueError(f"value: got {type(value).__name__}, which no source can state")


def number(value: float) -> str:
    """Returns the source of a float, infinities and nan included.

    >>> number(1e-05), number(float("-inf"))
    ('1e-05', 'float("-inf")')
    """
    if np.isfinite(value):
        return repr(float(value))
    return f'float("{value}")'


def element(value: Any, name: str) -> str:
    """Returns the source of one number of an array, exactly."""
    if name == "str":
        return quoted(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    if name.startswith("complex"):
        return f"complex({number(float(value.real))}, {number(float(value.imag))})"
    if name == "bool":
        return repr(bool(value))
    if name.startswith(("int", "uint")):
        return repr(int(value))
    if name in ("float16", "float32") and np.isfinite(value):
        return repr(float(str(value)))  # the shortest that is the same number
    return number(float(value))


def array_literal(value: np.ndarray) -> Expression:
    """Returns an expression whose value is the array, of NumPy."""
    name = name_of(value.dtype)
    items = tuple(element(item, name) for item in value.reshape(-1))
    nested = nest(items, value.shape) if value.size else None
    if name in PLAIN and nested is not None:
        return call("array", nested, quoted(name))
    flat_values = Group("", items, "[]")
    return call("array", flat_values, quoted(name), literal(value.shape))


def nest(items: Sequence[str], shape: Sequence[int]) -> Expression:
    """Returns items as lists in lists."""
    if not shape:
        return items[0]
    step = len(items) // shape[0]
    rows = (items[i * step : (i + 1) * step] for i in range(shape[0]))
    return Group("", tuple(nest(row, shape[1:]) for row in rows), "[]")


def filled(name: str, value: np.ndarray) -> list[str]:
    """Returns the statement that names a long array, each line of it filled."""
    dtype = name_of(value.dtype)
    text = ""
    rows = []
    for item in (element(item, dtype) for item in value.reshape(-1)):
        if text and len(text) + len(item) + 2 > WIDTH - 4:
            rows.append(f"    {text.rstrip()}")
            text = ""
        text += f"{item}, "
    rows.append(f"    {text.rstrip()}")
    shape = flat(literal(value.shape))
    tail = f"], {quoted(dtype)}, {shape})"
    return ["# fmt: off", f"{name} = array([", *rows, tail, "# fmt: on"]


def parameters(values: Mapping[str, str]) -> list[str]:
    """Returns ``name: type`` for each field of a class."""
    return [f"    {name}: {kind}" for name, kind in values.items()]
