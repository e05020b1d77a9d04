"""Flags and arguments that several commands share; nothing heavy is imported for them."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

from absl import flags

CHECKED = 20_000
"""Default limit on the number of images that a check reads."""

RUNTIMES = ("jax", "onednn", "onnxruntime", "openvino")
"""The engines of :mod:`jaxatr.onnx.sessions`, which is slow to import."""


def define_options() -> None:
    """Defines ``--option``, for options of a data set."""
    flags.DEFINE_multi_string(
        "option",
        [],
        "An option of the data set, NAME=VALUE with a JSON value, such as aspects=36 or "
        "ranges=[1000]; repeatable.",
    )


def define_runtime() -> None:
    """Defines ``--runtime``, the engine of a run's network."""
    flags.DEFINE_enum(
        "runtime",
        RUNTIMES[0],
        RUNTIMES,
        "The engine that runs the network: jax; jax with oneDNN's kernels where they are faster "
        "(onednn); or another engine, with the extra of its name. Explanations always use jax.",
    )


def options(texts: Iterable[str]) -> dict[str, Any]:
    """Parses the values of ``--option``.

    Raises:
      ValueError: one is not NAME=VALUE, or its value is not JSON.
    """
    return dict(map(_option, texts))


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option: got {text!r}, wanted NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        raise ValueError(f"--option={text}: {value!r} is not JSON") from None


def given(*names: str) -> dict[str, Any]:
    """Collects the flags that are set on the command line, name to value."""
    return {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}


def check_unused(*names: str, by: str) -> None:
    """Checks that flags that another flag does not use are not on the command line.

    Args:
      *names: names of the flags.
      by: name of the other flag.

    Raises:
      ValueError: one is given.
    """
    if unused := given(*names):
        raise ValueError(f"--{next(iter(unused))} cannot be combined with --{by}")


def checkpoint(text: str) -> Literal["best", "latest"] | int:
    """Parses ``--checkpoint``.

    Raises:
      ValueError: it is neither ``latest``, ``best`` nor a step.
    """
    if text in ("best", "latest"):
        return cast(Literal["best", "latest"], text)
    if not text.isdigit():
        raise ValueError(f"--checkpoint: got {text!r}, wanted 'latest', 'best' or a step")
    return int(text)


def say(text: str) -> None:
    """Prints the next step of a command to standard error, so that it is not silent for long."""
    print(text, file=sys.stderr, flush=True)


def only(arguments: Sequence[str], wanted: str) -> str:
    """Returns the single positional argument of a command.

    Args:
      arguments: positional arguments.
      wanted: description of the argument, for the message.

    Raises:
      ValueError: there is none, or more than one.
    """
    if len(arguments) != 1:
        raise ValueError(f"wanted {wanted}, got {', '.join(arguments) or 'none'}")
    return arguments[0]


def refuse(arguments: Sequence[str]) -> None:
    """Checks that a command without positional arguments got none.

    Raises:
      ValueError: there is one.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is not a flag: write --name=value")
