"""A written table from the names of fine classes to their coarse ones."""

import dataclasses
import re
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      coarse: the coarse class of a fine one by its name, or None where the table has no such class.
      names: what its names look like, for error messages.
      spellings: the names themselves where they are a list, to find the nearest one.
    """

    coarse: Callable[[str], str | None]
    names: str
    spellings: tuple[str, ...] = ()


def grouped(groups: Mapping[str, str], names: str) -> Table:
    """Returns the table of coarse classes, each with its fine ones separated by blanks."""
    found = {plain(fine): coarse for coarse, members in groups.items() for fine in members.split()}
    spellings = tuple(fine for members in groups.values() for fine in members.split())
    return Table(lambda name: found.get(plain(name)), names, spellings)


def plain(name: str) -> str:
    """Returns a name's letters and digits: ``"BRDM-2"`` and ``"brdm_2"`` are one class."""
    return re.sub("[^0-9a-z]", "", name.lower())
