"""Flags that describe a problem: its options, its direction and the type of its elements."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from jaxatr.kernels.options import FLOATS, Option


def define(
    options: Mapping[str, Option],
    *,
    dtypes: Sequence[str] = FLOATS,
    directions: Sequence[str] = ("forward", "backward"),
) -> None:
    """Defines the flags of a sub-command.

    Args:
      options: the options by the names of their flags.
      dtypes: the values of ``--dtype``; the default is ``"float32"``.
      directions: the values of ``--direction`` besides ``"all"``, the default.
    """
    for name, (default, meaning, _, choices) in options.items():
        if choices:
            flags.DEFINE_enum(name, str(default), list(choices), meaning)
        elif isinstance(default, bool):
            flags.DEFINE_bool(name, default, meaning)
        elif isinstance(default, int):
            # absl's logging already defines -v, for verbosity.
            flags.DEFINE_integer(name, default, meaning, allow_override=True)
        elif isinstance(default, float):
            flags.DEFINE_float(name, default, meaning)
        else:
            flags.DEFINE_string(name, default, meaning)
    flags.DEFINE_enum("dtype", "float32", list(dtypes), "Type of the elements.")
    meaning = "The function or a gradient of it."
    flags.DEFINE_enum("direction", "all", [*directions, "all"], meaning)


def given(options: Mapping[str, Option]) -> dict[str, Any]:
    """Returns the value of each option.

    Raises:
      ValueError: a number is below its minimum.
    """
    values = {name: getattr(flags.FLAGS, name) for name in options}
    for name, option in options.items():
        if option.least is not None and values[name] < option.least:
            raise ValueError(f"-{name}: got {values[name]}, wanted at least {option.least}")
    return values


def directions(known: Sequence[Any] = ("forward", "backward")) -> list[Any]:
    """Returns the directions that ``--direction`` selects."""
    asked = flags.FLAGS.direction
    return [one for one in known if asked in ("all", one)]
