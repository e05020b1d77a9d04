"""A polite request to stop: SIGTERM (a scheduler's preemption) or the first Ctrl-C."""

import signal
import threading
from types import FrameType

EXIT_PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: "try again later"


class Preempted(Exception):
    """The run was asked to stop, and did so after saving; the same command continues it.

    Attributes:
      step: the step that was saved.
      exit_code: what a command exits with.
    """

    exit_code = EXIT_PREEMPTED

    def __init__(self, step: int):
        """Takes the step that was saved."""
        super().__init__(f"stopped on request after step {step}, which is saved")
        self.step = step


class StopRequest:
    """Listens, as a context, for SIGTERM and SIGINT; a second one acts as it always did.

    Outside the main thread, where Python handles no signals, it never hears any.

    Attributes:
      heard: a signal has come.
    """

    def __init__(self):
        """Hears nothing yet."""
        self.heard = False
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        signal.signal(number, self._previous[number])

    def __enter__(self) -> "StopRequest":
        """Begins to listen."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.getsignal(number)
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back to whoever had them."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
