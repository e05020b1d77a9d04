"""TensorBoard's event files, written without TensorFlow."""

import time
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2
from tensorboardX.summary import scalar

_PROTO: Any = event_pb2  # its classes come into being at run time


class Events:
    """An event file of the scalars of records."""

    def __init__(self, folder: Path, *, step: int):
        """Opens a file in ``folder`` at ``step``: TensorBoard drops what it has read from there on.

        Args:
          folder: made where missing.
          step: the step that the run continues from, 0 for a new one.
        """
        # Not tensorboardX's SummaryWriter: its queue blocks for ever once its thread has met a full
        # disk. The time in the name keeps a quick restart from overwriting a file.
        folder.mkdir(exist_ok=True)
        self._file = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        purge = _PROTO.SessionLog(status=_PROTO.SessionLog.START)
        self._file.write_event(_PROTO.Event(step=step + 1, session_log=purge))

    def write(self, record: dict[str, Any]) -> None:
        """Writes every number of a record under the record's phase and step."""
        for name, value in record.items():
            if name not in ("step", "phase") and value is not None:
                summary = scalar(f"{record['phase']}/{name}", value)
                event = _PROTO.Event(wall_time=time.time(), step=record["step"], summary=summary)
                self._file.write_event(event)

    def flush(self) -> None:
        """Hands everything to the system."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
