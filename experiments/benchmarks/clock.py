"""Shares cores and turns between contenders that run in processes of their own.

PyTorch's worker imports it, so that nothing here imports jax.
"""

import os
import statistics
from collections.abc import Callable

_TURN, _MOST = 0.02, 500  # seconds and runs that a turn of short runs is filled up to
_LEAST = 3  # runs in a turn, unless they are long
LONG = 0.3  # seconds: of a run that takes longer, the first milliseconds do not matter


def cores() -> int:
    """Returns how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def several(clock: Callable[[], float]) -> Callable[[], float]:
    """Returns a clock whose turn is the median of several runs, where one is a moment only.

    A single run of some microseconds is as much the machine's mood as the program's speed; and of
    some milliseconds, a moment in which the machine did something else is most of it.
    """

    def turn() -> float:
        seconds = [clock()]
        while sum(seconds) < (LONG if len(seconds) < _LEAST else _TURN) and len(seconds) < _MOST:
            seconds.append(clock())
        return statistics.median(seconds)

    return turn
