"""Graceful stopping on SIGTERM (preemption by a scheduler) or the first Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

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
        super().__init__(f"stopped on request after step {step}, which is saved")
        self.step = step


class StopRequest:
    """A context manager that records SIGTERM and SIGINT; a second signal has its usual effect.

    Signals are not recorded outside of the main thread, where Python does not support it, or if a
    program that embeds Python handles them itself.

    Attributes:
      heard: whether a signal was received.
    """

    def __init__(self):
        self.heard = False
        self._previous: dict[int, Any] = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.heard = True
        _restore(self._previous)  # for both signals, so that a second one of either kind ends it

    def __enter__(self) -> "StopRequest":
        """Installs the signal handlers."""
        self._previous = _installed(self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the previous signal handlers."""
        _restore(self._previous)


@contextlib.contextmanager
def stopping_at_once() -> Iterator[None]:
    """Makes SIGTERM and SIGINT stop work that has nothing to save, such as an evaluation.

    Raises:
      Stopped: a signal was received.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("stopped on request; the training is saved, but not yet evaluated")

    previous = _installed(stop)
    try:
        yield
    finally:
        _restore(previous)


def _installed(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Installs a handler of SIGTERM and SIGINT, and returns the previous handlers by signal.

    Signals are left alone outside of the main thread, and if a program that embeds Python handles
    them, because Python could not restore its handler.
    """
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not None:
                previous[number] = signal.signal(number, handler)
    return previous


def _restore(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
