"""Graceful stopping on SIGTERM (preemption by a scheduler) or the first Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

EXIT_PREEMPTED = 75  # EX_TEMPFAIL of sysexits.h: "try again later"


class Stopped(Exception):
    """A command stopped on request without losing anything; the same command continues it.

    Attributes:
      exit_code: exit code of the command.
    """

    exit_code = EXIT_PREEMPTED


class Preempted(Stopped):
    """The training stopped on request, after saving its state.

    Attributes:
      step: the saved step.
    """

    def __init__(self, step: int):
        """Creates the exception for the saved step."""
        super().__init__(f"stopped on request after step {step}, which is saved")
        self.step = step


class StopRequest:
    """A context manager that records SIGTERM and SIGINT; a second signal has its usual effect.

    Signals are not handled outside of the main thread, where Python does not support it.

    Attributes:
      heard: whether a signal was received.
    """

    def __init__(self):
        """Creates a request that has not been made yet."""
        self.heard = False
        self._previous = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        for one, handler in self._previous.items():  # of either signal, the second one ends it
            signal.signal(one, handler)

    def __enter__(self) -> "StopRequest":
        """Installs the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous[number] = signal.getsignal(number)
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Makes SIGTERM and SIGINT stop work that has nothing to save, such as an evaluation.

    Raises:
      Stopped: a signal was received.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped on request; the training is saved, but not yet evaluated")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {n: signal.signal(n, stop) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
