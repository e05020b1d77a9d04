"""The record of a proof: a line of JSON for each unit, on disk before the next one begins."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from jaxatr import files

ATTEMPTS = 3  # of a unit that ends its process, or is cut by its time

#: A unit's name within its stage, and what it measures.
Unit = tuple[str, Callable[[], dict[str, Any]]]


class Rows:
    """Results of every unit so far.

    Attributes:
      rows: all lines that are there.
    """

    def __init__(self, folder: Path):
        """Reads what earlier runs left in a folder; a line that was cut does not count."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "rows.jsonl"
        self.rows: list[dict[str, Any]] = []
        if self._path.is_file():
            text = self._path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            self.rows = [json.loads(line) for line in whole.splitlines()]
            if whole != text:
                files.write_text(self._path, whole)

    def add(self, stage: str, unit: str, **fields: Any) -> None:
        """Adds a line, and waits until the disk has it."""
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
        """Returns how often a unit was begun."""
        return sum(r["stage"] == stage and r["unit"] == unit and "begun" in r for r in self.rows)

    def forget(self, units: Collection[tuple[str, str]]) -> None:
        """Takes out all lines of some units, each a stage and a name."""
        self.rows = [row for row in self.rows if (row["stage"], row["unit"]) not in units]
        files.write_text(self._path, "".join(json.dumps(row) + "\n" for row in self.rows))

    def work(self, stage: str, units: Iterable[Unit]) -> int:
        """Measures the units that are not known yet.

        Returns:
          An exit status: 0 if all are known, 3 after one that raised: what an accelerator does
          after an error is not to be trusted, so another process shall go on.
        """
        for name, measure in units:
            if name in self.of(stage):
                continue
            if self.attempts(stage, name) >= ATTEMPTS:
                self.add(stage, name, failed=f"ended its process or its time {ATTEMPTS} times")
                continue
            self.add(stage, name, begun=True)
            start = time.monotonic()
            try:
                fields = measure()
            except Exception as error:  # of a compiler, a driver, a kernel: anything
                text = " ".join(f"{type(error).__name__}: {error}".split())[:400]
                self.add(stage, name, failed=text)
                return 3
            if not fields.get("unfinished"):
                fields["seconds"] = round(time.monotonic() - start, 1)
                self.add(stage, name, **fields)
        return 0
