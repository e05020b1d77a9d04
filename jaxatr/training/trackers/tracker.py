"""The base classes of trackers."""

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

Record: TypeAlias = Mapping[str, str | int | float | None]
"""The numbers of a step by name, with its number, ``step``, and the name of its ``phase``."""


class Writer(abc.ABC):
    """The records of one run, open for writing."""

    @abc.abstractmethod
    def write(self, record: Record) -> None:
        """Takes a record, whose numbers are finite or None.

        Raises:
          OSError: writing failed, for example because of a full disk.
        """

    def flush(self) -> None:
        """Sends or saves all records so far, which precedes each checkpoint."""
        return None

    @abc.abstractmethod
    def close(self, error: BaseException | None) -> None:
        """Ends the writing; ``error`` is what ended the training, None if it came to its end."""


class Tracker(abc.ABC):
    """A place where the records of trainings are shown."""

    def check(self) -> object:
        """Checks that its packages are installed.

        Raises:
          ImportError: one is not.
        """
        return None

    @abc.abstractmethod
    def open(self, workdir: Path, *, step: int) -> Writer:
        """Opens a run's records, and continues those of an interrupted run.

        Args:
          workdir: the run's folder, which has the records up to ``step`` as ``metrics.jsonl``.
          step: the step from which the run continues; -1 if it begins.

        Raises:
          OSError: the place cannot be reached or written.
        """


def numbers(record: Record) -> dict[str, float]:
    """Returns the numbers of a record by the name of their curve, ``PHASE/NAME``."""
    return {
        f"{record['phase']}/{name}": float(value)
        for name, value in record.items()
        if name not in ("step", "phase") and isinstance(value, int | float)
    }
