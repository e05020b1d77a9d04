"""Flags and arguments that several commands have: a checkpoint, paths of images."""

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

from absl import flags

from jaxatr import data
from jaxatr.onnx.sessions import JAX, RUNTIMES

CHECKED = 20_000
"""Images that a check reads at most, unless it is told otherwise."""


def define_options() -> None:
    """Defines ``--option``, a data set's own options."""
    flags.DEFINE_multi_string(
        "option",
        [],
        "NAME=VALUE of the data set's own, the value as JSON: aspects=36, ranges=[1000].",
    )


def define_runtime() -> None:
    """Defines ``--runtime``, the engine of a run's network."""
    flags.DEFINE_enum(
        "runtime",
        JAX,
        RUNTIMES,
        "Run the network in jax, or in another engine, each an extra; explanations stay in jax.",
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


class Inputs:
    """The inputs that a command's arguments lead to, read one after another.

    Attributes:
      used: number and path of each input that was yielded and not taken from here yet.
      failed: number of each input that cannot be used, to its row of a table: path and error.
    """

    def __init__(
        self,
        arguments: Iterable[str],
        scratch: str,
        *,
        read: Callable[[str], Any],
        check: Callable[[Any], object],
        folders: bool = False,
        named: str = "error",
    ):
        """Takes the arguments; nothing is read yet.

        Args:
          arguments: of the command line: images, folders and archives.
          scratch: a folder for what is in archives.
          read: reads an input from its path.
          check: raises ``ValueError`` for one that cannot be used.
          folders: a folder is one input, as a track is.
          named: the word before the line on standard error about one that cannot be used.
        """
        self._arguments, self._scratch, self._folders = arguments, scratch, folders
        self._read, self._check, self._named = read, check, named
        self.used: deque[tuple[int, data.ImagePath]] = deque()
        self.failed: dict[int, dict[str, data.Cell]] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yields the inputs that can be used; names the others on standard error, at once."""
        for number, path in enumerate(self._paths()):
            try:
                if isinstance(path, _Refused):
                    raise path.error
                item = self._read(path.file)
                self._check(item)
            except (ValueError, OSError) as error:
                # A file of an archive has two paths, of which a user knows one.
                known = isinstance(path, _Refused)
                reason = str(error) if known else str(error).replace(path.file, path.name)
                line = reason if path.name in reason else f"{path.name}: {reason}"
                print(f"{self._named}: {line}", file=sys.stderr)
                row: dict[str, data.Cell] = {"path": path.name}
                self.failed[number] = row | {"error": reason.removeprefix(f"{path.name}: ")}
                continue
            self.used.append((number, path))
            yield item

    def _paths(self) -> "Iterator[data.ImagePath | _Refused]":
        for number, argument in enumerate(self._arguments):
            if self._folders:
                yield data.ImagePath(argument, argument, os.path.basename(argument))
                continue
            try:
                found = data.image_paths(argument, os.path.join(self._scratch, str(number)))
            except (ValueError, OSError) as error:
                yield _Refused(argument, error)
                continue
            if passed := data.describe_passed(found.passed):
                print(f"{argument}: {passed}", file=sys.stderr)
            yield from found.images


class _Refused(NamedTuple):
    """A path of the command line that leads to no image."""

    name: str
    error: ValueError | OSError
