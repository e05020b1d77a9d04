"""The console's record of its predictions, a table of JSON lines."""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxatr.data import Cell
from jaxatr.files import open_regular
from jaxatr.recognition import sightings
from jaxatr.typing import Float

_FIELDS = ("label", "nearest", "score", "decides", "threshold", "known_probability", "p_value")


class Record:
    """Appends a row for each prediction to a file, as ``jaxatr predict --out`` writes it.

    It has no pictures, and of the images no more than their names. Threads may share it. The file
    is opened for each request, so that it can be moved away: the next row begins a new one.
    """

    def __init__(self, path: Path, run: str, runtime: str):
        """Opens the file.

        Args:
          path: the file, which ends in ``.jsonl``; an existing one is continued.
          run: the run, see :func:`jaxatr.training.run_id`.
          runtime: the engine of its network.

        Raises:
          ValueError: the file has another suffix, or is no record of predictions.
          OSError: it cannot be written.
        """
        if path.suffix.lower() != ".jsonl":
            raise ValueError(f"--record: got {path}, wanted a name that ends in .jsonl")
        self._run, self._runtime, self._lock = run, runtime, threading.Lock()
        # Whether a killed process, or a full disk, has left the beginning of a row.
        self._broken = path.exists() and _is_broken(path)
        path.open("ab").close()
        self._path = path

    def row(
        self,
        name: str,
        source: str,
        verdict: Mapping[str, Any] | None,
        facts: Float[np.ndarray, " f"] | None = None,
        error: str | None = None,
    ) -> dict[str, Cell]:
        """Makes the row of an image: its verdict and facts, or why it could not be used."""
        first = {"path": name, "error": error, "runtime": self._runtime}
        origin = {sightings.TIME: sightings.now(), sightings.SOURCE: source}
        fields = {field: (verdict or {}).get(field) for field in _FIELDS}
        return {
            **first,
            **origin,
            sightings.RUN: self._run,
            **fields,
            **sightings.fact_cells(facts),
        }

    def write(self, rows: Iterable[Mapping[str, Cell]]) -> None:
        """Appends rows.

        Raises:
          OSError: the disk is full or fails.
        """
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        left = text.encode(errors="replace")
        with self._lock, self._path.open("ab", buffering=0) as file:
            if self._broken and file.tell():
                file.write(b"\n")
            self._broken = True
            while left:
                left = left[file.write(left) :]
            self._broken = False


def _is_broken(path: Path) -> bool:
    """Returns whether a record's last row has no end.

    Raises:
      ValueError: it is no record of predictions.
    """
    with open_regular(path) as file:
        first = file.readline(1 << 16)
        try:
            is_record = not first or {"path", sightings.TIME} <= json.loads(first).keys()
        except (ValueError, AttributeError):
            is_record = False
        if not is_record:
            raise ValueError(f"--record: {path} has other content than predictions")
        file.seek(-1 if first else 0, os.SEEK_END)
        return file.read(1) not in (b"", b"\n")
