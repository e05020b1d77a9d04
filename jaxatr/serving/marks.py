"""Users' marks on predictions: wrong ones, and groups of chips that belong together."""

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxatr import files
from jaxatr.serving.folder import Folder

MOST = 10_000
"""Largest number of marks; a file of that size is written in well under a second."""

FILE = "marks.jsonl"

_LOCK_SECONDS = 5.0


class Marks:
    """A JSON Lines file with one mark per image, rewritten atomically on every change.

    Several consoles of one run may share the file: each change starts from its present content.

    Attributes:
      path: the file; it is created with the first mark.
    """

    def __init__(self, path: Path):
        """Reads the file, if it exists.

        Raises:
          ValueError: a line is not a mark; the message gives its number.
          OSError: the file cannot be read, or its folder does not exist.
        """
        self.path, self._lock = path, threading.Lock()
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
        self._folder = Folder(path.parent)
        self._read()

    def all(self) -> list[dict[str, Any]]:
        """Lists the marks, oldest first.

        Raises:
          ValueError: another program has written a line that is not a mark.
          OSError: the file cannot be read, or its folder has been replaced.
        """
        with self._alone():
            return list(self._read().values())

    def put(self, marks: Iterable[Mapping[str, Any]]) -> int:
        """Saves marks; a mark replaces an earlier one on the same image.

        Returns:
          The number of marks after the change.

        Raises:
          ValueError: there would be more than :data:`MOST`.
          OSError: the file cannot be written, its folder has been replaced, or another process
            holds its lock; nothing is changed then.
        """
        with self._changing():
            after = self._read() | {mark["id"]: dict(mark) for mark in marks}
            if len(after) > MOST:
                raise ValueError(f"there would be {len(after)} marks; the limit is {MOST}")
            return self._replace(after)

    def remove(self, ids: Iterable[str]) -> int:
        """Deletes the marks with the given ids, and returns the number deleted."""
        with self._changing():
            marks = self._read()
            gone = set(ids) & marks.keys()
            if gone:
                self._replace({id: mark for id, mark in marks.items() if id not in gone})
            return len(gone)

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

    def _read(self) -> dict[str, dict[str, Any]]:
        marks: dict[str, dict[str, Any]] = {}
        if not self.path.is_file():
            return marks
        # Bytes, because a line may not be UTF-8, which json then reports.
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                mark = json.loads(line)
                marks[mark["id"]] = mark
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{self.path}: line {number} is not a mark") from error
        return marks

    def _replace(self, marks: dict[str, dict[str, Any]]) -> int:
        lines = (json.dumps(mark, ensure_ascii=False) + "\n" for mark in marks.values())
        files.write_text(self.path, "".join(lines))
        return len(marks)
