"""The inputs that a command's arguments name: images, folders, archives and tables of paths."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jaxatr import data
from jaxatr.cli.terminal import one_line
from jaxatr.recognition.sightings import source_of


class Inputs:
    """The inputs that a command's arguments name, read one after another.

    Attributes:
      used: queue of (number, path) of the inputs that were yielded; the consumer removes them.
      failed: number of each unusable input to its row of a table: path and error.
      facts: number of an input to what else its row says; nothing here.
      sources: number of each input to the source that it is counted under.
    """

    facts: Mapping[int, dict[str, data.Cell]] = {}

    def __init__(
        self,
        arguments: Iterable[str],
        scratch: str,
        *,
        read: Callable[[str], Any],
        prepare: Callable[[Any], Any],
        folders: bool = False,
        named: str = "error",
        bands: data.Bands = data.PLAIN,
    ):
        """Reads nothing yet.

        Args:
          arguments: positional arguments: images, folders, archives, and tables of paths.
          scratch: a folder for files unpacked from archives.
          read: reads an input from its path.
          prepare: converts an input to the network's; raises ``ValueError`` for an unusable one.
          folders: treat each folder as one input (a track).
          named: prefix of the line on standard error about an unusable input.
          bands: how files become images.
        """
        self._bands = bands
        self._arguments, self._scratch, self._folders = arguments, scratch, folders
        self._read, self._prepare, self._named = read, prepare, named
        self.used: deque[tuple[int, data.ImagePath]] = deque()
        self.failed: dict[int, dict[str, data.Cell]] = {}
        self.sources: dict[int, str] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yields the usable inputs, prepared; reports each unusable one on standard error."""
        for number, path in enumerate(self._paths()):
            self.sources[number] = source_of(path.argument, whole=self._folders)
            try:
                if path.error is not None:
                    raise path.error
                item = self._prepare(self._read(path.file))
            except (ValueError, OSError, ImportError) as error:
                reason = data.reason_of(error, path.name, path.file)
                line = data.line_of(error, path.name, path.file)
                print(f"{self._named}: {one_line(line)}", file=sys.stderr)
                self.failed[number] = {"path": path.name, "error": reason}
                continue
            self.used.append((number, path))
            yield item

    def _paths(self) -> Iterator[data.ImagePath]:
        if self._folders:
            return (itself(argument) for argument in self._arguments)
        return paths(self._arguments, self._scratch, self._bands)


def itself(argument: str) -> data.ImagePath:
    """Returns an argument as one input."""
    return data.ImagePath(argument, argument, os.path.basename(argument), argument=argument)


def paths(
    arguments: Iterable[str], scratch: str, bands: data.Bands = data.PLAIN
) -> Iterator[data.ImagePath]:
    """Yields the images that arguments name, and inputs that cannot be opened, with the error.

    Args:
      arguments: positional arguments: images, folders, archives, and tables of paths.
      scratch: a folder for files unpacked from archives.
      bands: how files become images.
    """
    for number, argument in enumerate(arguments):
        try:
            found = data.image_paths(argument, os.path.join(scratch, str(number)), bands)
        except (ValueError, OSError) as error:
            yield itself(argument)._replace(error=error)
            continue
        if passed := data.describe_passed(found.passed):
            print(f"{one_line(argument)}: {one_line(passed)}", file=sys.stderr)
        yield from (image._replace(argument=argument) for image in found.images)
