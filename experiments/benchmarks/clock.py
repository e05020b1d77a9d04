"""Turns of contenders that run in separate processes.

PyTorch's worker imports this module, so it must not import jax.
"""

import os
import statistics
from collections.abc import Callable

_TURN, _MOST = 0.02, 500  # seconds and the most runs of a turn of short runs
_LEAST = 3  # the fewest runs of a turn, unless they are long
LONG = 0.3  # seconds; for longer runs the first milliseconds do not matter


def cores() -> int:
    """Returns the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def several(clock: Callable[[], float]) -> Callable[[], float]:
    """Returns a clock whose turn is the median of several runs, if runs are short.

    A single run of microseconds or milliseconds would be dominated by noise of the machine.
    """

    def turn() -> float:
        seconds = [clock()]
        while sum(seconds) < (LONG if len(seconds) < _LEAST else _TURN) and len(seconds) < _MOST:
            seconds.append(clock())
        return statistics.median(seconds)

    return turn
