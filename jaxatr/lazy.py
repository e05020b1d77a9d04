"""Imports that take place late, or not at all."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the ``__getattr__`` of a package whose names and modules are imported late.

    The names that type checkers and editors see are imported under ``TYPE_CHECKING`` beside it.

    Args:
      package: name of the package.
      homes: by name, the module that defines it; or ``module:other`` if it has another name there,
        and ``module:`` for the module itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            if not name.startswith("_") and find_spec(f"{package}.{name}"):
                return importlib.import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path, colon, there = homes[name].partition(":")
        value = module = importlib.import_module(path)
        if there or not colon:
            value = getattr(module, there or name)
        setattr(sys.modules[package], name, value)
        return value

    return get


@contextlib.contextmanager
def absent(module: str) -> Iterator[None]:
    """Lets imports inside the context find no ``module``, unless it is imported already.

    For packages that import a large optional one only to know its types.
    """
    if module in sys.modules:
        yield
        return
    absence: Any = None  # the import system's mark for a module that cannot be imported
    sys.modules[module] = absence
    try:
        yield
    finally:
        del sys.modules[module]
