"""metrics.jsonl and TensorBoard events, both exact across restarts; written by process 0 only."""

import json
import math
import os
from pathlib import Path
from typing import Any

import jax
from tensorboardX import SummaryWriter

METRICS = "metrics.jsonl"


class MetricWriter:
    """Appends records to ``workdir/metrics.jsonl`` and mirrors their numbers to TensorBoard.

    Used as a context. In processes other than 0 it does nothing.
    """

    def __init__(self, workdir: str | os.PathLike, *, step: int):
        """Opens the files at ``step``: records beyond it, from a run that was cut off, are dropped.

        Args:
          workdir: the run's folder.
          step: the step that the run continues from, 0 for a new one.
        """
        self._primary = jax.process_index() == 0
        if not self._primary:
            return
        path = Path(workdir) / METRICS
        _keep_until(path, step)
        self._file = path.open("a", encoding="utf-8")
        self._events = SummaryWriter(
            str(Path(workdir) / "tensorboard"), purge_step=step + 1 if step else None
        )

    def write(self, record: dict[str, Any]) -> None:
        """Writes one record; a value that is not finite becomes ``null``."""
        if not self._primary:
            return
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        self._file.write(json.dumps(finite) + "\n")
        self._file.flush()
        for name, value in finite.items():
            if name not in ("step", "phase") and value is not None:
                self._events.add_scalar(f"{record['phase']}/{name}", value, record["step"])

    def sync(self) -> None:
        """Puts all records on the disk: a checkpoint must never know more than they do."""
        if self._primary:
            os.fsync(self._file.fileno())

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._primary:
            self._file.close()
            self._events.close()


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the records of ``workdir/metrics.jsonl``, a last line that was cut short left out."""
    path = Path(workdir) / METRICS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _keep_until(path: Path, step: int) -> None:
    records = [record for record in read_metrics(path.parent) if record["step"] <= step]
    partial = path.with_suffix(".partial")
    partial.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    partial.replace(path)
