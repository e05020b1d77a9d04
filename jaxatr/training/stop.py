"""A polite request to stop: SIGTERM (a scheduler's preemption) or the first Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: "try again later"


class Stopped(Exception):
    """Says that a command stopped when asked to and lost nothing; the same command continues it.

    Attributes:
      exit_code: what a command exits with.
    """

    exit_code = EXIT_PREEMPTED


class Preempted(Stopped):
    """The training was asked to stop, and did so after saving.

    Attributes:
      step: the step that was saved.
    """

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


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Lets SIGTERM and SIGINT end what has nothing to save, such as an evaluation.

    Raises:
      Stopped: a signal came.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped on request; the training is saved, and its evaluation is not done")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
