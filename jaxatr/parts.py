"""Parts that are found by their place: scores, sources, backbones and so on, a file each.

A folder such as ``jaxatr/openset/detectors`` holds the parts of one kind. A file (or folder) in it
declares a part as ``PART``, and its name is the part's. There is no list to extend: to add a part,
add its file. Names that begin with an underscore, and the file that defines the kind, are not
parts. A part outside the package is named by its dotted path, ``my.module:NAME``.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from jaxatr.resolve import nearest, resolve

T = TypeVar("T")


def files(package: str, *others: str) -> list[str]:
    """Returns the names of a folder's modules, sorted, without importing anything.

    Args:
      package: dotted path of the folder.
      *others: names to leave out.

    >>> "energy" in files("jaxatr.openset.detectors")
    True
    """
    if package in sys.modules:
        path = sys.modules[package].__path__
    else:  # find_spec would import the packages above it
        root, *below = package.split(".")
        path = [str(Path(parent, *below)) for parent in importlib.import_module(root).__path__]
    return [name for name in _listed(tuple(path)) if name not in others]


@cache
def _listed(path: tuple[str, ...]) -> list[str]:
    names = {module.name for module in pkgutil.iter_modules(path)}
    return sorted(name for name in names if not name.startswith("_"))


def modules(package: str, *others: str) -> list[ModuleType]:
    """Imports and returns the modules of a folder, in the order of :func:`files`."""
    return [importlib.import_module(f"{package}.{name}") for name in files(package, *others)]


class Parts(Mapping[str, T]):
    """The parts of a folder by name; a part is imported when it is asked for."""

    def __init__(
        self,
        package: str,
        kind: type[T],
        *,
        field: str = "",
        variants: bool = False,
        first: Sequence[str] = (),
    ):
        """Describes a folder, of which nothing is read yet.

        Args:
          package: dotted path of the folder.
          kind: type of the parts.
          field: what selects a part, such as a configuration field or a flag, for error messages.
          variants: whether a file may declare several parts, as ``PARTS``, whose names begin with
            the file's. All files are then imported to list the names.
          first: names that are listed before the others.
        """
        self.package, self.kind = package, kind
        self._field, self._variants, self._first = field, variants, first

    def files(self) -> list[str]:
        """Returns the names of the folder's files, without importing them."""
        place, _, file = self.kind.__module__.rpartition(".")
        return files(self.package, *([file] if place == self.package else []))

    def declared(self, file: str) -> tuple[T, ...]:
        """Imports a file and returns what it declares.

        Raises:
          ValueError: it does not declare a part of this kind, or one whose name is not the file's.
        """
        module = importlib.import_module(f"{self.package}.{file}")
        one = getattr(module, "PART", None)
        several = getattr(module, "PARTS", ()) if self._variants else ()
        found = tuple(several) if one is None else (one,)
        if not found or not all(isinstance(part, self.kind) for part in found):
            raise ValueError(f"{module.__name__}: wanted a {self.kind.__name__}, declared as PART")
        for part in found:
            name = getattr(part, "name", file)
            if name != file and not (self._variants and name.startswith(file)):
                raise ValueError(f"{module.__name__}: declares {name!r}, wanted {file!r}")
        return found

    def __getitem__(self, name: str) -> T:
        """Returns a part by name."""
        declaring = [f for f in self.files() if f == name or self._variants and name.startswith(f)]
        for file in sorted(declaring, key=len, reverse=True):  # conflabel_detector, then conflabel
            for part in self.declared(file):
                if name == getattr(part, "name", file):
                    return part
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        """Returns whether there is a part of this name, which is imported only if variants are."""
        return super().__contains__(name) if self._variants else name in self.files()

    def __iter__(self) -> Iterator[str]:
        """Yields the names."""
        names = self.files()
        if self._variants:
            names = [getattr(part, "name", file) for file in names for part in self.declared(file)]
        return iter(dict.fromkeys((*self._first, *names)))

    def __len__(self) -> int:
        """Returns the number of parts."""
        return sum(1 for _ in self)

    def find(self, name: str) -> T:
        """Returns a part by its name, or one outside the package by its dotted path.

        Raises:
          ValueError: there is none; the path leads to something else, or is not trusted
            (:func:`~jaxatr.resolve.resolve`); or it has the name of a part of the package.
        """
        if ":" not in name:
            if name in self:
                return self[name]
            choice = ", ".join(self)
            raise ValueError(
                f"{self._field}: got {name!r}, wanted one of {choice}, or my.module:NAME of your "
                f"own{nearest(name, self)}"
            )
        part = resolve(name)
        if not isinstance(part, self.kind):
            raise ValueError(
                f"{self._field}: {name} is a {type(part).__name__}, wanted a {self.kind.__name__}"
            )
        called = getattr(part, "name", "")
        if called in self and self[called] is not part:
            raise ValueError(f"{self._field}: {name} has the name of a built-in one, {called!r}")
        return part
