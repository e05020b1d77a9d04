"""TensorBoard: event files in the run's folder."""

from pathlib import Path

from jaxatr.training.trackers.tracker import Record, Tracker, Writer, numbers

EVENTS = "tensorboard"


class _Events(Writer):
    def __init__(self, folder: Path, step: int):
        # Imported late, because only this tracker needs tensorboardX.
        from jaxatr.training.events import Events

        self._events = Events(folder, step=step)

    def write(self, record: Record) -> None:
        self._events.write(int(record["step"] or 0), numbers(record))

    def flush(self) -> None:
        self._events.flush()

    def close(self, error: BaseException | None) -> None:
        del error
        self._events.close()


class TensorBoard(Tracker):
    """Event files in ``workdir/tensorboard``."""

    def open(self, workdir: Path, *, step: int) -> Writer:
        """Opens a new event file; TensorBoard discards earlier events after ``step``."""
        return _Events(workdir / EVENTS, max(0, step))


PART = TensorBoard()
