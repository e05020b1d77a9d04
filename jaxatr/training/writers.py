"""metrics.jsonl and TensorBoard events, both exact across restarts; written by process 0 only."""

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
        self._folder = Path(workdir)
        _keep_until(self._folder / METRICS, step)
        self._file = (self._folder / METRICS).open("a", encoding="utf-8")
        # Imported here because tensorboardX imports PyTorch where it is installed: three seconds
        # and 180 MB that only a training should pay.
        from jaxatr.training.events import Events

        self._events = Events(self._folder / EVENTS, step=step)

    def write(self, record: dict[str, Any]) -> None:
        """Writes one record; a value that is not finite becomes ``null``.

        Raises:
          OSError: it cannot be written (a full disk); the folder is named.
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
        """Puts all records on the disk: a checkpoint must never know more than they do.

        Raises:
          OSError: as :meth:`write`.
        """
        if self._primary:
            with _naming(self._folder):
                os.fsync(self._file.fileno())
                self._events.flush()

    def __enter__(self) -> "MetricWriter":
        """Returns itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the files; an error that is on its way is not covered by one of closing them."""
        if self._primary:
            with suppress(OSError) if kind else _naming(self._folder):
                self._file.close()
                self._events.close()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Adds the folder to an error such as "no space left on device", which has no file name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (records of the run)", str(folder)) from error


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Returns the records of ``workdir/metrics.jsonl``, a last line that was cut short left out."""
    path = Path(workdir) / METRICS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _keep_until(path: Path, step: int) -> None:
    records = [record for record in read_metrics(path.parent) if record["step"] <= step]
    files.write_text(path, "".join(json.dumps(record) + "\n" for record in records))
