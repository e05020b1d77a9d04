"""Writers of metrics.jsonl and TensorBoard events that have no gaps or repeats after restarts."""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from jaxatr import files

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"


class MetricWriter:
    """Appends records to ``workdir/metrics.jsonl`` and writes their numbers to TensorBoard.

    A context manager, which does nothing in processes other than process 0.
    """

    def __init__(self, workdir: str | os.PathLike, *, step: int):
        """Opens the files, and removes records after ``step`` that an interrupted run left.

        Args:
          workdir: the run's folder.
          step: the step from which the run continues; -1 if it begins, so that not even a record of
            an evaluation before the first step remains.
        """
        self._primary = jax.process_index() == 0
        if not self._primary:
            return
        self._folder = Path(workdir)
        _keep_until(self._folder / METRICS, step)
        self._file = (self._folder / METRICS).open("a", encoding="utf-8")
        # Imported late because tensorboardX imports PyTorch if it is installed, which takes three
        # seconds and 180 MB.
        from jaxatr.training.events import Events

        self._events = Events(self._folder / EVENTS, step=max(0, step))

    def write(self, record: dict[str, Any]) -> None:
        """Writes one record; values that are not finite become ``null``.

        Raises:
          OSError: writing failed, for example because of a full disk; the message has the folder.
        """
        if not self._primary:
            return
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        with _naming(self._folder):
            self._file.write(json.dumps(finite) + "\n")
            self._file.flush()
            self._events.write(finite)

    def sync(self) -> None:
        """Flushes all records to disk, which must precede saving a checkpoint.

        Raises:
          OSError: writing failed, for example because of a full disk; the message has the folder.
        """
        if self._primary:
            with _naming(self._folder):
                os.fsync(self._file.fileno())
                self._events.flush()

    def __enter__(self) -> "MetricWriter":
        """Returns itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the files; an error in doing so does not replace one that is being raised."""
        if self._primary:
            with suppress(OSError) if kind else _naming(self._folder):
                self._file.close()
                self._events.close()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Adds the folder to errors without a file name, such as "no space left on device"."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (records of the run)", str(folder)) from error


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
            records.append(record)
        except ValueError as error:
            raise ValueError(f"{path} is damaged in line {number}: {error}") from error
    return records


def _keep_until(path: Path, step: int) -> None:
    records = [record for record in read_metrics(path.parent) if record["step"] <= step]
    files.write_text(path, "".join(json.dumps(record) + "\n" for record in records))
