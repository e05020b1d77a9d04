"""The writer of a training's records, which have no gaps or repeats after restarts."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax

from jaxatr.training.metrics_file import METRICS, keep_until
from jaxatr.training.trackers import TRACKERS, Tracker


class MetricWriter:
    """Appends records to ``workdir/metrics.jsonl``, and hands them to trackers.

    A context manager, which does nothing in processes other than process 0.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        *,
        step: int,
        trackers: Sequence[Tracker] | None = None,
    ):
        """Opens all, and removes records after ``step`` that an interrupted run left.

        Args:
          workdir: the run's folder.
          step: the step from which the run continues; -1 if it begins, so that not even a record of
            an evaluation before the first step remains.
          trackers: where the records are shown; None for TensorBoard.

        Raises:
          OSError: the file cannot be written, or a tracker cannot be reached.
        """
        self._primary = jax.process_index() == 0
        if not self._primary:
            return
        self._folder = Path(workdir)
        keep_until(self._folder / METRICS, step)
        self._file = (self._folder / METRICS).open("a", encoding="utf-8")
        shown = [TRACKERS["tensorboard"]] if trackers is None else trackers
        self._writers = [tracker.open(self._folder, step=step) for tracker in shown]

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
            for writer in self._writers:
                writer.write(finite)

    def sync(self) -> None:
        """Flushes all records to disk, which must precede saving a checkpoint.

        Raises:
          OSError: writing failed, for example because of a full disk; the message has the folder.
        """
        if self._primary:
            with _naming(self._folder):
                os.fsync(self._file.fileno())
                for writer in self._writers:
                    writer.flush()

    def __enter__(self) -> "MetricWriter":
        """Returns itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        """Closes everything; an error in doing so does not replace one that is being raised."""
        if self._primary:
            with suppress(OSError) if kind else _naming(self._folder):
                self._file.close()
                for writer in self._writers:
                    writer.close(error)


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Adds the folder to errors without a file name, such as "no space left on device"."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, f"{error.strerror} (records of the run)", str(folder)) from error
