"""The marks that people made on answers: what is wrong, and which chips belong together."""

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxatr import files

MOST = 10_000
"""Marks that are kept; a table of so many is written in well under a second."""

FILE = "marks.jsonl"


class Marks:
    """Marks in a file of JSON lines, one for each image, which is whole after every change.

    Attributes:
      path: of the file; it is written when something is marked first.
    """

    def __init__(self, path: Path):
        """Reads the file, if it is there.

        Raises:
          ValueError: it is no file of marks; the line is named.
          OSError: it cannot be read, or there is no folder for it.
        """
        self.path, self._lock = path, threading.Lock()
        self._marks: dict[str, dict[str, Any]] = {}
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
        if not path.is_file():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                mark = json.loads(line)
                self._marks[mark["id"]] = mark
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}: line {number} is no mark") from error

    def all(self) -> list[dict[str, Any]]:
        """Lists the marks, the oldest first."""
        with self._lock:
            return list(self._marks.values())

    def put(self, marks: Iterable[Mapping[str, Any]]) -> int:
        """Keeps marks, each in the place of an earlier one on the same image.

        Returns:
          How many there are now.

        Raises:
          ValueError: there would be too many.
          OSError: the file cannot be written; then nothing has changed.
        """
        with self._lock:
            after = self._marks | {mark["id"]: dict(mark) for mark in marks}
            if len(after) > MOST:
                raise ValueError(f"there would be {len(after)} marks, at most {MOST} are kept")
            return self._replace(after)

    def remove(self, ids: Iterable[str]) -> int:
        """Forgets marks, and returns how many there were."""
        with self._lock:
            gone = set(ids) & self._marks.keys()
            if gone:
                self._replace({id: mark for id, mark in self._marks.items() if id not in gone})
            return len(gone)

    def _replace(self, marks: dict[str, dict[str, Any]]) -> int:
        lines = (json.dumps(mark, ensure_ascii=False) + "\n" for mark in marks.values())
        files.write_text(self.path, "".join(lines))
        self._marks = marks
        return len(marks)
