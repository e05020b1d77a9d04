"""The file metrics.jsonl of a run, a record of figures on each line."""

import json
import os
from pathlib import Path
from typing import Any

from jaxatr import files, forms
from jaxatr.forms import FIGURE, TEXT

METRICS = "metrics.jsonl"


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads the records of ``workdir/metrics.jsonl``, without an incomplete last line.

    Raises:
      ValueError: another line is damaged.
    """
    path = Path(workdir) / METRICS
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                raise ValueError("it has no number of a step, 'step'")
            if not isinstance(record.get("phase"), str):
                raise ValueError("it has no name of a phase, 'phase'")
        except ValueError as error:
            raise ValueError(f"{path} is damaged in line {number}: {error}") from error
        forms.check(record, {"*": FIGURE, "phase": TEXT}, f"{path}, line {number}")
        records.append(record)
    return records


def keep_until(path: Path, step: int) -> None:
    """Removes the records after a step."""
    records = [record for record in read_metrics(path.parent) if record["step"] <= step]
    files.write_text(path, "".join(json.dumps(record) + "\n" for record in records))
