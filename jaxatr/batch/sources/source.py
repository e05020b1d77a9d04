"""The base class of sources: inputs are listed once, and read in parts by any process."""

import abc
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeAlias

from jaxatr.data import line_of, reason_of
from jaxatr.recognition.sightings import source_of

Key: TypeAlias = Any
"""Identifies an input within its source; a JSON value, but no object."""

_NAMED = 10  # largest number of unreadable inputs that a source names


class Found(NamedTuple):
    """An input, as a file or as the error that prevents reading it.

    Attributes:
      name: path of the input for the user.
      file: path of the file; files in a worker's scratch folder are removed after reading.
      error: the error if there is no file; else None.
    """

    name: str
    file: str
    error: Exception | None = None


class Unread(NamedTuple):
    """An input within a source that cannot be read.

    Attributes:
      below: its path relative to the source; empty for the source itself.
      error: the error.
    """

    below: str
    error: Exception


class Source(abc.ABC):
    """The inputs of one argument of the command line. Instances are sent to other processes.

    Attributes:
      name: the argument, as given by the user.
      counted_as: the source that its rows name.
      passed: number of files by kind that were skipped by :meth:`keys`.
      unread: lines about the first inputs that :meth:`listed` could not read.
    """

    def __init__(self, name: str):
        """Reads nothing yet."""
        self.name, self._path = name, Path(name).absolute()
        self.counted_as = source_of(name)
        self.passed: dict[str, int] = {}
        self.unread: list[str] = []

    @property
    def place(self) -> str:
        """The argument independent of the working directory: for a path, the absolute path."""
        return str(self._path)

    @abc.abstractmethod
    def state(self) -> Any:
        """Returns a JSON value that changes if the inputs change under the same keys.

        Raises:
          ValueError: the source is damaged.
        """

    @abc.abstractmethod
    def keys(self) -> Iterator[Key | Unread]:
        """Yields the keys of all inputs, always in the same order.

        Raises:
          ValueError: there are no inputs, or the rest of the source is damaged.
          OSError: the source cannot be read.
        """

    @abc.abstractmethod
    def read(self, keys: Sequence[Key], scratch: Path) -> Iterator[Found]:
        """Yields the inputs of some keys, in order.

        Args:
          keys: some of the keys of :meth:`keys`, in the same order.
          scratch: a folder for temporary files of inputs that are not files.
        """

    def listed(self) -> Iterator[Key | dict[str, str]]:
        """Yields :meth:`keys`, with an object for each input that cannot be read.

        An error that ends the keys becomes the last object, with the name of the source itself.
        """
        self.unread = []
        try:
            for key in self.keys():
                yield self._noted(key) if isinstance(key, Unread) else key
        except (ValueError, OSError) as error:
            yield self._noted(Unread("", error))

    def _noted(self, unread: Unread) -> dict[str, str]:
        asked = unread.error, self.name, str(self._path)
        name, reason = self.name, reason_of(*asked)
        line = line_of(*asked)
        if unread.below:
            name = str(PurePath(name, unread.below))
            line = f"{name}: {reason}"
        if len(self.unread) < _NAMED:
            self.unread.append(line)
        return {"name": name, "error": reason}

    def found(self, keys: Sequence[Any], scratch: Path) -> Iterator[Found]:
        """Yields the inputs of some keys of :meth:`listed`, like :meth:`read`."""
        for unread, some in itertools.groupby(keys, lambda key: isinstance(key, dict)):
            if unread:
                yield from (Found(key["name"], "", ValueError(key["error"])) for key in some)
            else:
                yield from self.read(list(some), scratch)


def written(scratch: Path, number: int, name: str, content: bytes) -> Found:
    """Writes an input's content to a file in ``scratch``, named by ``number``."""
    path = scratch / f"{number}{Path(name).suffix}"
    path.write_bytes(content)
    return Found(name, str(path))
