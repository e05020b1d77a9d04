"""The protocol of where inputs come from: listed once, read in parts by any process."""

import abc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = Any
"""Names an input within its source; a value of JSON."""


class Found(NamedTuple):
    """An input that can be read.

    Attributes:
      name: the path as a user knows it.
      file: where it lies now; in a worker's scratch folder it may be removed once it is read.
      error: why there is no file; None where there is one.
    """

    name: str
    file: str
    error: Exception | None = None


class Source(abc.ABC):
    """Inputs that an argument of the command line leads to. It is sent to other processes.

    Attributes:
      name: as the user gave it.
      passed: kind to how many files were passed over as it was listed.
    """

    def __init__(self, name: str):
        """Takes the argument; nothing is read yet."""
        self.name, self._path = name, Path(name).absolute()
        self.passed: dict[str, int] = {}

    @abc.abstractmethod
    def state(self) -> Any:
        """Returns a value of JSON that changes with the inputs, beside their keys."""

    @abc.abstractmethod
    def keys(self) -> Iterator[Key]:
        """Yields the keys of all inputs, always in the same order.

        Raises:
          ValueError: there are none, or the source is damaged.
        """

    @abc.abstractmethod
    def read(self, keys: Sequence[Key], scratch: Path) -> Iterator[Found]:
        """Yields the inputs of some keys, in their order.

        Args:
          keys: of :meth:`keys`, in that order.
          scratch: a folder for the files of inputs that have none.
        """


def written(scratch: Path, number: int, name: str, content: bytes) -> Found:
    """Makes a file of an input's content; ``number`` tells it from those before it."""
    path = scratch / f"{number}{Path(name).suffix}"
    path.write_bytes(content)
    return Found(name, str(path))
