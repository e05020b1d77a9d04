"""Flags of one letter that are whole numbers, as MIOpen's driver has them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from absl import flags

#: Letter to its default, its least value and its meaning.
Letters: TypeAlias = Mapping[str, tuple[int, int, str]]

IMAGES: Letters = {
    "n": (32, 1, "images"),
    "c": (32, 1, "channels of an image"),
    "H": (32, 1, "rows of an image"),
    "W": (32, 1, "columns of an image"),
}
FLOATS = ["float32", "bfloat16", "float16", "float64"]


def define(letters: Letters, dtypes: Sequence[str] = FLOATS) -> None:
    """Defines the letters, and the type of the elements."""
    for letter, (default, _, meaning) in letters.items():
        # absl's logging has a v of its own, short for verbosity.
        flags.DEFINE_integer(letter, default, meaning, allow_override=True)
    flags.DEFINE_enum("dtype", "float32", list(dtypes), "Type of the elements.")


def numbers(letters: Letters) -> list[int]:
    """Returns what the command line gives for each letter.

    Raises:
      ValueError: a number is less than it may be.
    """
    given = [getattr(flags.FLAGS, letter) for letter in letters]
    for value, (letter, (_, least, _)) in zip(given, letters.items(), strict=True):
        if value < least:
            raise ValueError(f"-{letter}: got {value}, wanted at least {least}")
    return given


def images() -> tuple[int, int, int, int]:
    """Returns ``(batch, height, width, channels)``."""
    n, c, h, w = numbers(IMAGES)
    return n, h, w, c


def define_direction(directions: Sequence[str] = ("forward", "backward")) -> None:
    """Defines which directions are asked for."""
    meaning = "What is computed: the function or its gradient."
    flags.DEFINE_enum("direction", "all", [*directions, "all"], meaning)


def directions(known: Sequence[Any] = ("forward", "backward")) -> list[Any]:
    """Returns the directions that are asked for."""
    asked = flags.FLAGS.direction
    return [one for one in known if asked in ("all", one)]
