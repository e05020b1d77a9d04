"""Converts a graph's names to safe identifiers, and its strings to safe literals."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

import flax.linen

from jaxatr.onnx import nn as layers

LONGEST = 40
"""Maximum number of characters of an identifier."""

# Names with a meaning of their own in a generated file, such as the attributes of flax modules.
RESERVED = frozenset(
    [*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *dir(flax.linen.Module), "np", "nn"]
    + ["jnp", "ops", "self", "train", "i", "l", "Model", "name", "parent", "scope", "params"]
    + layers.__all__
)


def identifier(name: str, fallback: str = "value") -> str:
    """Returns a name reduced to ASCII letters, digits and underscores.

    >>> identifier("layer1.0/conv1"), identifier('"); import os #'), identifier("é1")
    ('layer1_0_conv1', 'import_os', 'e1')
    """
    plain = unicodedata.normalize("NFKD", name[: 4 * LONGEST]).encode("ascii", "ignore").decode()
    ascii_name = re.sub(r"\W+", "_", plain)
    ascii_name = re.sub(r"__+", "_", ascii_name).strip("_")[:LONGEST].strip("_")
    if not ascii_name or ascii_name[0].isdigit():
        ascii_name = f"{fallback}_{ascii_name}".strip("_")
    return ascii_name


def quoted(text: str) -> str:
    """Returns a string literal in double quotes.

    >>> quoted("it's"), quoted('say "no"')
    ('"it\\'s"', '"say \\\\x22no\\\\x22"')
    """
    literal = repr(text)
    if literal[0] == '"':
        return literal
    return '"' + literal[1:-1].replace("\\'", "'").replace('"', "\\x22") + '"'


class Names:
    """The identifiers in use in one scope."""

    def __init__(self, taken: Iterable[str] = ()):
        """Starts with the given names taken, in addition to the reserved ones."""
        self.taken = set(taken)

    def free(self, wanted: str) -> bool:
        """Returns whether a name is unused."""
        return wanted not in self.taken and wanted not in RESERVED

    def take(self, wanted: str) -> str:
        """Takes a name and returns it, with a number appended if it is in use."""
        made, count = wanted, 1
        while not self.free(made):
            count += 1
            made = f"{wanted}_{count}"
        self.taken.add(made)
        return made
