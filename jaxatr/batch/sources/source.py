"""The base class of sources: inputs are listed once, and read in parts by any process."""

import abc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = Any
"""Identifies an input within its source; a JSON value."""


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


class Source(abc.ABC):
    """The inputs of one argument of the command line. Instances are sent to other processes.

    Attributes:
      name: the argument, as given by the user.
      passed: number of files by kind that were skipped by :meth:`keys`.
    """

    def __init__(self, name: str):
        """Takes the argument; nothing is read yet."""
        self.name, self._path = name, Path(name).absolute()
        self.passed: dict[str, int] = {}

    @property
    def place(self) -> str:
        """The input independent of the working directory: for files, their absolute path."""
        return str(self._path)

    @abc.abstractmethod
    def state(self) -> Any:
        """Returns a JSON value that changes if the inputs change under the same keys."""

    @abc.abstractmethod
    def keys(self) -> Iterator[Key]:
        """Yields the keys of all inputs, always in the same order.

        Raises:
          ValueError: there are no inputs, or the source is damaged.
        """

    @abc.abstractmethod
    def read(self, keys: Sequence[Key], scratch: Path) -> Iterator[Found]:
        """Yields the inputs of some keys, in order.

        Args:
          keys: some of the keys of :meth:`keys`, in the same order.
          scratch: a folder for temporary files of inputs that are not files.
        """


def written(scratch: Path, number: int, name: str, content: bytes) -> Found:
    """Writes an input's content to a file in ``scratch``, named by ``number``."""
    path = scratch / f"{number}{Path(name).suffix}"
    path.write_bytes(content)
    return Found(name, str(path))
