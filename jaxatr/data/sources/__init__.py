"""The data sources, a file or folder each, found by their place (:mod:`jaxatr.parts`)."""

import re

from jaxatr.data.source import Option, Source
from jaxatr.data.sources import _tfds
from jaxatr.parts import Parts
from jaxatr.resolve import resolve

_DOTTED_PATH = re.compile(r"[\w.]+:[^\W\d][\w.]*")  # does not match TFDS's name:1.2.3


#: The package's sources by name.
SOURCES = Parts(__name__, Source)


def names() -> list[str]:
    """Returns the names of the package's sources without importing them."""
    return list(SOURCES)


def find(name: str) -> Source | None:
    """Finds a source of the package by name or another one by its dotted path; None if not found.

    Args:
      name: ``"simulated"``, or ``"my.module:Source"`` for a class (or an object) that follows
        :class:`jaxatr.data.source.Source`.

    Raises:
      ValueError: the dotted path does not lead to a source, or the source's name is taken or is not
        a valid folder name.
    """
    if _DOTTED_PATH.fullmatch(name):
        return _from_outside(name)
    return SOURCES.get(name)


def _from_outside(path: str) -> Source:
    found = resolve(path)
    lacks = [name for name in ("name", "version", "scan") if not hasattr(found, name)]
    is_class = isinstance(found, type) and (Source in found.__mro__ or not lacks)
    source = found() if is_class else found  # no other class is called
    if not isinstance(source, Source):
        raise ValueError(
            f"{path!r} is not a data source: it has no {', '.join(lacks)}"
            if lacks
            else f"{path!r} is not a data source: wanted a class that inherits jaxatr.data.Source"
        )
    check_name(source.name)
    if source.name in SOURCES or _tfds.exists(source.name):
        raise ValueError(f"{path!r}: {source.name!r} is already the name of another data set")
    return source


def check_name(name: str) -> None:
    """Checks that a name is a valid folder name."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"name: got {name!r}, wanted letters, digits, '_', '.' and '-'")


def with_path() -> list[str]:
    """Returns the names of the package's sources that read a path."""
    return [name for name, source in SOURCES.items() if source.takes]


def with_flags() -> dict[str, dict[str, Option]]:
    """Returns the options that are flags of ``jaxatr prepare``: name to source to option."""
    found: dict[str, dict[str, Option]] = {}
    for source, part in SOURCES.items():
        for name, option in part.options.items():
            if option.flag is not None:
                found.setdefault(name, {})[source] = option
    return found
