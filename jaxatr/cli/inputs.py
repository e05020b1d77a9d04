"""Flags and arguments that several commands have: a checkpoint, paths of images."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, cast

from absl import flags

from jaxatr import data

CHECKED = 20_000
"""Images that a check reads at most, unless it is told otherwise."""


def define_options() -> None:
    """Defines ``--option``, a data set's own options."""
    flags.DEFINE_multi_string(
        "option",
        [],
        "NAME=VALUE of the data set's own, the value as JSON: aspects=36, ranges=[1000].",
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
        raise ValueError(f"--option is NAME=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        raise ValueError(f"--option={text}: {value!r} is not JSON") from None


def given(*names: str) -> dict[str, Any]:
    """Collects the flags that the command line sets, name to value."""
    return {name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present}


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


def refuse(arguments: Sequence[str]) -> None:
    """Refuses arguments where a command takes flags alone.

    Raises:
      ValueError: there is one.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write --name=value")


def usable_images(
    paths: Iterable[str],
    check: Callable[[Any], object],
    used: deque[str],
    failed: list[str],
) -> Iterator[Any]:
    """Yields the images that can be used; names the others on standard error, at once.

    Args:
      paths: of image files.
      check: raises ``ValueError`` for an image that cannot be used.
      used: gets the paths of those that can, before each is yielded.
      failed: gets the paths of the others.
    """
    for path in paths:
        try:
            image = data.read_image(path)
            check(image)
        except (ValueError, OSError) as error:
            message = str(error)
            print(f"error: {message if path in message else f'{path}: {message}'}", file=sys.stderr)
            failed.append(path)
            continue
        used.append(path)
        yield image
