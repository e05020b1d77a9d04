"""Writing TensorBoard event files without TensorFlow."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxatr.lazy import absent

with absent("torch"):  # which takes one to three seconds and 180 MB
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto import event_pb2
    from tensorboardX.summary import scalar

_PROTO: Any = event_pb2  # the protobuf classes are created at run time


class Events:
    """An event file with scalars."""

    def __init__(self, folder: Path, *, step: int):
        """Opens a new file in ``folder``; TensorBoard discards earlier events after ``step``.

        Args:
          folder: created if missing.
          step: the step from which the run continues, 0 for a new run.
        """
        # tensorboardX's SummaryWriter is not used because its queue blocks for ever once its thread
        # has failed on a full disk. The time in the name avoids overwriting a file after a restart.
        folder.mkdir(exist_ok=True)
        self._file = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        purge = _PROTO.SessionLog(status=_PROTO.SessionLog.START)
        self._file.write_event(_PROTO.Event(step=step + 1, session_log=purge))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Writes the numbers of a step by the name of their curve."""
        for name, value in numbers.items():
            summary = scalar(name, value)
            event = _PROTO.Event(wall_time=time.time(), step=step, summary=summary)
            self._file.write_event(event)

    def flush(self) -> None:
        """Flushes all events to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
