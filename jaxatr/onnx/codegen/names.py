"""Names of a graph as identifiers, and strings of a file as literals: never as code."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

import flax.linen

from jaxatr.onnx import nn as layers

LONGEST = 40
"""Characters of an identifier."""

# Names that mean something else in a generated file. No submodule is named as an attribute.
RESERVED = frozenset(
    [*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *dir(flax.linen.Module), "np", "nn"]
    + ["jnp", "ops", "self", "train", "i", "l", "Model", "name", "parent", "scope", "params"]
    + layers.__all__
)


def identifier(name: str, fallback: str = "value") -> str:
    """Returns a name with nothing but ASCII's letters, digits and underscores.

    >>> identifier("layer1.0/conv1"), identifier('"); import os #'), identifier("é1")
    ('layer1_0_conv1', 'import_os', 'e1')
    """
    plain = unicodedata.normalize("NFKD", name[: 4 * LONGEST]).encode("ascii", "ignore").decode()
    made = re.sub(r"\W+", "_", plain)
    made = re.sub(r"__+", "_", made).strip("_")[:LONGEST].strip("_")
    if not made or made[0].isdigit():
        made = f"{fallback}_{made}".strip("_")
    return made


def quoted(text: str) -> str:
    """Returns a literal of a string, in double quotes, as formatters want it.

    >>> quoted("it's"), quoted('say "no"')
    ('"it\\'s"', '"say \\\\x22no\\\\x22"')
    """
    literal = repr(text)
    if literal[0] == '"':
        return literal
    return '"' + literal[1:-1].replace("\\'", "'").replace('"', "\\x22") + '"'


class Names:
    """Identifiers that are taken in one scope."""

    def __init__(self, taken: Iterable[str] = ()):
        """Starts with some names taken, besides those that are reserved."""
        self.taken = set(taken)

    def free(self, wanted: str) -> bool:
        """Returns whether nothing has this name."""
        return wanted not in self.taken and wanted not in RESERVED

    def take(self, wanted: str) -> str:
        """Returns the name, with a number where it is taken, and takes it."""
        made, count = wanted, 1
        while not self.free(made):
            count += 1
            made = f"{wanted}_{count}"
        self.taken.add(made)
        return made
