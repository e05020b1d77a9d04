"""The declaration of one field of a configuration."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field of a configuration.

    Attributes:
      default: its value where nothing sets it. ``None`` leaves it unset; a dictionary is open:
        configuration files put their own names into it.
      meaning: in a few words, for the tables; Markdown.
      kind: type of the values of a field whose default is ``None``.
      formerly: the value that stood for "unset" in runs recorded before the default was ``None``.
      earlier: the value that runs had before there was this field, where it is not the default.
    """

    default: Any
    meaning: str
    kind: type | None = None
    formerly: Any = None
    earlier: Any = None


Fields = Mapping[str, Field]
"""Dotted name (``"data.select.band"``) to declaration."""


def table(fields: Fields) -> str:
    """Returns fields as a table in Markdown: name, default and meaning."""
    rows = ["| field | default | meaning |", "|---|---|---|"]
    rows += [f"| `{name}` | `{one.default!r}` | {one.meaning} |" for name, one in fields.items()]
    return "\n".join(rows)
