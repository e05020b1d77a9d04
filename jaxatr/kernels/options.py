"""Command-line flags that describe a problem, with the letters of MIOpen's driver."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

FLOATS = ("float32", "bfloat16", "float16", "float64")


class Option(NamedTuple):
    """A flag.

    Attributes:
      default: the default value, whose type is the flag's type.
      meaning: the help text.
      least: the smallest valid value of an integer.
      choices: the valid values of a string; empty if any is valid.
    """

    default: bool | int | float | str
    meaning: str
    least: int | None = None
    choices: Sequence[str] = ()


class Command(NamedTuple):
    """A sub-command of ``jaxatr tune``, which measures problems of one operation.

    Attributes:
      name: the name of the sub-command.
      summary: the sentence that describes it on its help page.
      problem: makes the problem from ``direction``, ``dtype`` and the options, all by keyword; it
        raises a ``ValueError`` that names the flags if they do not fit together.
      options: the options by name: ``n`` is the flag ``-n``, ``mode`` the flag ``--mode``.
    """

    name: str
    summary: str
    problem: Callable[..., Any]
    options: Mapping[str, Option]


IMAGES = {
    "n": Option(32, "images", 1),
    "c": Option(32, "channels of an image", 1),
    "H": Option(32, "rows of an image", 1),
    "W": Option(32, "columns of an image", 1),
}
