"""The data sources: each module of this folder defines one as ``SOURCE``, with the module's name.

A source is imported on first use. Modules whose names begin with an underscore are not sources.
"""

import importlib
import pkgutil
import re

from jaxatr.data.source import Flag, Source
from jaxatr.data.sources import _tfds
from jaxatr.resolve import resolve

_DOTTED_PATH = re.compile(r"[\w.]+:[^\W\d][\w.]*")  # does not match TFDS's name:1.2.3


def names() -> list[str]:
    """Returns the names of the package's sources without importing them."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if not name.startswith("_"))


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
    if name not in names():
        return None
    return importlib.import_module(f"{__name__}.{name}").SOURCE


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
    if source.name in names() or _tfds.exists(source.name):
        raise ValueError(f"{path!r}: {source.name!r} is already the name of another data set")
    return source


def check_name(name: str) -> None:
    """Checks that a name is a valid folder name."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"name: got {name!r}, wanted letters, digits, '_', '.' and '-'")


def with_path() -> list[str]:
    """Returns the names of the package's sources that read a path."""
    return [name for name in names() if getattr(find(name), "takes", "")]


def flags() -> dict[str, dict[str, Flag]]:
    """Returns the sources' flags of ``jaxatr prepare``: flag name to source name to flag."""
    found: dict[str, dict[str, Flag]] = {}
    for name in names():
        source = find(name)
        for flag in source.flags if source else ():
            found.setdefault(flag.name, {})[name] = flag
    return found
