"""Formats expressions as source code, with line breaks in the style of ``ruff format``."""

from collections.abc import Sequence
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
"""Types that NumPy itself defines."""


@dataclass(frozen=True)
class Group:
    """A bracketed list of expressions, such as a call, a tuple or a list.

    Attributes:
      head: expression before the opening bracket; empty for a list or tuple, which is broken into
        one line per item.
      items: expressions between the brackets.
      brackets: opening and closing bracket.
      prefix: ``name=`` of a keyword argument, which comes first.
    """

    head: "Expression"
    items: tuple["Expression", ...]
    brackets: str = "()"
    prefix: str = ""


Expression: TypeAlias = str | Group


def call(head: Expression, *items: Expression, **keywords: Expression) -> Group:
    """Returns the expression of a call."""
    named = tuple(keyword(name, value) for name, value in keywords.items())
    return Group(head, (*items, *named))


def keyword(name: str, value: Expression) -> Expression:
    """Returns the expression ``name=value``."""
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
    one_line = margin + prefix + flat(expression) + suffix
    if len(one_line) <= WIDTH or isinstance(expression, str) or not expression.items:
        return [one_line]
    before = prefix + expression.prefix + flat(expression.head) + expression.brackets[0]
    if isinstance(expression.head, Group) and indent + len(before) > WIDTH:
        # Break the constructor arguments of a layer, not those of its call.
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
    """Returns the source of a plain Python value or a NumPy array.

    Raises:
      ValueError: the value has no literal.
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
    raise ValueError(f"value: got {type(value).__name__}, which has no literal")


def number(value: float) -> str:
    """Returns the source of a float, including infinities and NaN.

    >>> number(1e-05), number(float("-inf"))
    ('1e-05', 'float("-inf")')
    """
    if np.isfinite(value):
        return repr(float(value))
    return f'float("{value}")'


def element(value: Any, name: str) -> str:
    """Returns the exact source of one element of an array."""
    if name == "str":
        return quoted(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    if name.startswith("complex"):
        return f"complex({number(float(value.real))}, {number(float(value.imag))})"
    if name == "bool":
        return repr(bool(value))
    if name.startswith(("int", "uint")):
        return repr(int(value))
    if name in ("float16", "float32") and np.isfinite(value):
        return repr(float(str(value)))  # the shortest representation
    return number(float(value))


def array_literal(value: np.ndarray) -> Expression:
    """Returns an expression that evaluates to a NumPy array."""
    name = name_of(value.dtype)
    items = tuple(element(item, name) for item in value.reshape(-1))
    nested = nest(items, value.shape) if value.size else None
    if name in PLAIN and nested is not None:
        return call("array", nested, quoted(name))
    flat_values = Group("", items, "[]")
    return call("array", flat_values, quoted(name), literal(value.shape))


def nest(items: Sequence[str], shape: Sequence[int]) -> Expression:
    """Returns items as nested lists of a shape."""
    if not shape:
        return items[0]
    step = len(items) // shape[0]
    rows = (items[i * step : (i + 1) * step] for i in range(shape[0]))
    return Group("", tuple(nest(row, shape[1:]) for row in rows), "[]")


def filled(name: str, value: np.ndarray) -> list[str]:
    """Returns the lines of the statement that defines a long array, filled to the full width."""
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
