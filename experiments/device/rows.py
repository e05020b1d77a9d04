"""The record of a proof: one line of JSON per unit, on disk before the next unit begins."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from jaxatr import files

ATTEMPTS = 3  # attempts at a unit that kills its process or exceeds its time

#: A unit's name within its stage, and the function that measures it.
Unit = tuple[str, Callable[[], dict[str, Any]]]


class Rows:
    """The results of all units so far.

    Attributes:
      rows: all rows of the record.
    """

    def __init__(self, folder: Path):
        """Reads the rows of earlier runs from a folder; an incomplete last line is dropped."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rows.jsonl"
        self.rows: list[dict[str, Any]] = []
        if self._path.is_file():
            text = self._path.read_text(encoding="utf-8")
            complete = text[: text.rfind("\n") + 1]
            self.rows = [json.loads(line) for line in complete.splitlines()]
            if complete != text:
                files.write_text(self._path, complete)

    def add(self, stage: str, unit: str, **fields: Any) -> None:
        """Appends a row and waits until it is on disk."""
        row = {"stage": stage, "unit": unit, **fields, "at": round(time.time(), 1)}
        self.rows.append(row)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, stage: str) -> dict[str, dict[str, Any]]:
        """Returns the last finished row of each unit of a stage."""
        return {r["unit"]: r for r in self.rows if r["stage"] == stage and "begun" not in r}

    def attempts(self, stage: str, unit: str) -> int:
        """Returns how many times a unit was begun."""
        return sum(r["stage"] == stage and r["unit"] == unit and "begun" in r for r in self.rows)

    def forget(self, units: Collection[tuple[str, str]]) -> None:
        """Removes all rows of some units, each given by its stage and its name."""
        self.rows = [row for row in self.rows if (row["stage"], row["unit"]) not in units]
        files.write_text(self._path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def work(self, stage: str, units: Iterable[Unit]) -> int:
        """Measures the units that have no result yet.

        Returns:
          An exit status: 0 if all units have results, 3 if a unit raised. An accelerator cannot be
          trusted after an error, so another process has to continue.
        """
        for name, measure in units:
            if name in self.of(stage):
                continue
            if self.attempts(stage, name) >= ATTEMPTS:
                self.add(stage, name, failed=f"killed its process or timed out {ATTEMPTS} times")
                continue
            self.add(stage, name, begun=True)
            start = time.monotonic()
            try:
                fields = measure()
            except Exception as error:  # compilers, drivers and kernels can raise anything
                text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                self.add(stage, name, failed=text)
                return 3
            if not fields.get("unfinished"):
                fields["seconds"] = round(time.monotonic() - start, 1)
                self.add(stage, name, **fields)
        return 0
