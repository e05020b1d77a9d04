"""The declaration of one field of a configuration."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field of a configuration.

    Attributes:
      default: the default value. ``None`` leaves the field unset; a dictionary is an open group, to
        which configuration files can add names of their own.
      meaning: short description for the documentation, in Markdown.
      kind: type of the values, if the default is ``None``.
      formerly: the value that meant "unset" in runs recorded before the default became ``None``.
      earlier: the value that applies to runs recorded before the field existed, if it is not the
        default.
    """

    default: Any
    meaning: str
    kind: type | None = None
    formerly: Any = None
    earlier: Any = None


Fields = Mapping[str, Field]
"""Declarations by dotted name (``"data.select.band"``)."""


def table(fields: Fields) -> str:
    """Formats fields as a Markdown table: each with its default, as a flag sets it, and meaning."""
    rows = ["| field and default | meaning |", "|---|---|"]
    rows += [
        f"| `{name}={_written(one.default)}` | {one.meaning} |" for name, one in fields.items()
    ]
    return "\n".join(rows)


def _written(value: object) -> str:
    """Writes a value as on the command line: without quotes, and several after one another."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
