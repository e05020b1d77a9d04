"""Tables that map the names of fine classes to coarse classes."""

import dataclasses
import re
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of coarse classes.

    Attributes:
      coarse: returns the coarse class of a fine class's name, or None if the table has no such
        class.
      names: a description of the accepted names, for error messages.
      spellings: the accepted names if they are enumerable, to suggest the nearest one.
    """

    coarse: Callable[[str], str | None]
    names: str
    spellings: tuple[str, ...] = ()


def grouped(groups: Mapping[str, str], names: str) -> Table:
    """Creates a table from coarse classes, each with its fine classes separated by blanks."""
    found = {plain(fine): coarse for coarse, members in groups.items() for fine in members.split()}
    spellings = tuple(fine for members in groups.values() for fine in members.split())
    return Table(lambda name: found.get(plain(name)), names, spellings)


def plain(name: str) -> str:
    """Reduces a name to lower-case letters and digits, so that ``"BRDM-2"`` equals ``"brdm_2"``."""
    return re.sub("[^0-9a-z]", "", name.lower())
