"""Rows that users of the console write into a file, one for each key."""

import abc
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxatr import files
from jaxatr.serving.folder import Folder

_LOCK_SECONDS = 5.0


class KeptRows(abc.ABC):
    """A file with one row for each key, rewritten atomically on every change.

    Several consoles may share the file: each change starts from its present content.

    Attributes:
      path: the file; it is created with the first row.
      key: name of the column that tells rows apart.
    """

    key = ""

    def __init__(self, path: Path):
        """Reads the file, if it exists.

        Raises:
          ValueError: a line is not a row; the message gives its number.
          OSError: the file cannot be read, or its folder does not exist.
        """
        self.path, self._lock = path, threading.Lock()
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
        self._folder = Folder(path.parent)
        self._read()

    def all(self) -> list[dict[str, Any]]:
        """Lists the rows, oldest first.

        Raises:
          ValueError: another program has written a line that is not a row.
          OSError: the file cannot be read, or its folder has been replaced.
        """
        with self._alone():
            return list(self._read().values())

    def put(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Saves rows; a row replaces an earlier one with the same key.

        Returns:
          The number of rows after the change.

        Raises:
          ValueError: there would be more than the file may have.
          OSError: the file cannot be written, its folder has been replaced, or another process
            holds its lock; nothing is changed then.
        """
        with self._changing():
            after = self._read() | {row[self.key]: dict(row) for row in rows}
            return self._replace(after)

    def remove(self, keys: Iterable[str]) -> int:
        """Deletes the rows with the given keys, and returns the number deleted."""
        with self._changing():
            rows = self._read()
            gone = set(keys) & rows.keys()
            if gone:
                self._replace({key: row for key, row in rows.items() if key not in gone})
            return len(gone)

    @abc.abstractmethod
    def _read(self) -> dict[str, dict[str, Any]]:
        """Reads the rows by key; a file that does not exist has none."""

    @abc.abstractmethod
    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        """Formats all rows as the text of the file; ValueError if there are too many."""

    def _replace(self, rows: Mapping[str, Mapping[str, Any]]) -> int:
        files.write_text(self.path, self._text(rows.values()))
        return len(rows)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Keeps other threads, and consoles in other processes, from changing the file."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        with self._alone(), files.locked(lock, seconds=_LOCK_SECONDS):
            yield

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other threads from the file, and makes sure that it is still the same one."""
        if not self._lock.acquire(timeout=_LOCK_SECONDS):
            raise TimeoutError(f"{self.path} is in use, after {_LOCK_SECONDS:g} s of waiting")
        try:
            self._folder.check()
            yield
        finally:
            self._lock.release()
