"""A model's nodes as text: the table, and what the importer lacks."""

from collections.abc import Sequence
from typing import Any

from jaxatr.onnx import ops  # noqa: F401 (fills the table of operators)
from jaxatr.onnx.listing import Layer
from jaxatr.onnx.reading import printable
from jaxatr.onnx.registry import Operator, operators

HEADER = ("name", "operator", "attributes", "inputs", "outputs", "parameters", "supported")
WIDEST = 48
"""Characters of a cell; what is longer is cut."""


def table(layers: Sequence[Layer]) -> str:
    """Returns one line for each node, in columns."""
    rows = [HEADER, *(_cells(layer) for layer in layers)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(layers: Sequence[Layer]) -> str:
    """Returns the counts, and every operator without an implementation with its nodes."""
    count = sum(layer.parameters for layer in layers)
    found = [f"{len(layers)} nodes, {count:,} parameters"]
    missing: dict[str, list[str]] = {}
    for layer in layers:
        for operator in layer.missing:
            missing.setdefault(printable(operator), []).append(layer.name)
    if not missing:
        return "\n".join([*found, "every operator has an implementation"])
    found.append("operators without an implementation (jaxatr.onnx.register adds one):")
    return "\n".join(
        [*found, *(f"  {name}: {printable(', '.join(at))}" for name, at in sorted(missing.items()))]
    )


def operator_table() -> str:
    """Returns a Markdown table of every operator that has an implementation.

    Operators that ONNX defines by others need none: their definition is put in their place.
    """
    versions: dict[tuple[str, str], list[Operator]] = {}
    for operator in operators():
        versions.setdefault((operator.domain, operator.name), []).append(operator)
    lines = ["| operator | from version | function |", "|---|---|---|"]
    for (domain, name), found in versions.items():
        title = f"{domain}.{name}".lstrip(".")
        since = ", ".join(str(operator.since) for operator in found)
        functions = ", ".join(dict.fromkeys(f"`{o.function.__name__}`" for o in found))
        lines.append(f"| {title} | {since} | {functions} |")
    return "\n".join(lines)


def _cells(layer: Layer) -> tuple[str, ...]:
    attributes = ", ".join(f"{name}={value}" for name, value in layer.attributes.items())
    return (
        _cut(layer.name),
        _cut(_title(layer)),
        _cut(attributes),
        _cut(" ".join(_shape(value.shape) for value in layer.inputs)),
        _cut(" ".join(_shape(value.shape) for value in layer.outputs)),
        f"{layer.parameters:,}" if layer.parameters else "",
        "yes" if layer.supported else "NO",
    )


def _title(layer: Layer) -> str:
    return printable(f"{layer.domain}.{layer.operator}".lstrip("."))


def _shape(shape: Any) -> str:
    if shape is None:
        return "?"
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
