"""The inputs that a command's arguments name: images, folders, archives and tables of paths."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from jaxatr import data


class Inputs:
    """The inputs that a command's arguments name, read one after another.

    Attributes:
      used: queue of (number, path) of the inputs that were yielded; the consumer removes them.
      failed: number of each unusable input to its row of a table: path and error.
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
          arguments: positional arguments: images, folders, archives, and tables of paths.
          scratch: a folder for files unpacked from archives.
          read: reads an input from its path.
          check: raises ``ValueError`` for an unusable input.
          folders: treat each folder as one input (a track).
          named: prefix of the line on standard error about an unusable input.
        """
        self._arguments, self._scratch, self._folders = arguments, scratch, folders
        self._read, self._check, self._named = read, check, named
        self.used: deque[tuple[int, data.ImagePath]] = deque()
        self.failed: dict[int, dict[str, data.Cell]] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yields the usable inputs; reports each unusable one on standard error."""
        for number, path in enumerate(self._paths()):
            try:
                if isinstance(path, _Refused):
                    raise path.error
                item = self._read(path.file)
                self._check(item)
            except (ValueError, OSError) as error:
                # Show the user's path of a file in an archive, not the unpacked file's.
                refused = isinstance(path, _Refused)
                reason = str(error) if refused else str(error).replace(path.file, path.name)
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
    """An argument that names no image."""

    name: str
    error: ValueError | OSError
