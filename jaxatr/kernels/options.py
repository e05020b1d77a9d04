"""The flags by which a command line describes a problem, with the letters of MIOpen's driver."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

FLOATS = ("float32", "bfloat16", "float16", "float64")


class Option(NamedTuple):
    """A flag.

    Attributes:
      default: its value unless it is given; flags are of its type.
      meaning: for the command's help.
      least: of a whole number, the least that makes sense.
      choices: of a text, all that it may be; empty for any.
    """

    default: bool | int | float | str
    meaning: str
    least: int | None = None
    choices: Sequence[str] = ()


class Command(NamedTuple):
    """A sub-command of ``jaxatr tune``, which measures problems of one operation.

    Attributes:
      name: of the sub-command.
      problem: takes ``direction``, ``dtype`` and the options by name, and returns the problem; it
        raises a ``ValueError`` that names the flags that do not fit together.
      options: by name; ``-n`` for one letter, ``--mode`` for more.
    """

    name: str
    problem: Callable[..., Any]
    options: Mapping[str, Option]


IMAGES = {
    "n": Option(32, "images", 1),
    "c": Option(32, "channels of an image", 1),
    "H": Option(32, "rows of an image", 1),
    "W": Option(32, "columns of an image", 1),
}
