"""The clock that benchmarks share: contenders take turns, in one process or in several."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
from clock import LONG

PAUSE = 0.005  # seconds: PyTorch's threads go on spinning after their work, and would be in the way
# Threads that have slept wake on the core that calls them: the first milliseconds after a pause run
# as if there were one core, of a library whose threads sleep at once, and not of one that spins.
WARM = 0.03  # seconds
_ENOUGH = 3  # rounds, after which one may be out, and the budget counts
_AT_ONCE = 3  # times as slow as that, and it is out after one


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """Makes a function that runs once, waits for the end and returns the seconds."""

    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - start

    return once


def in_turn(
    clocks: Mapping[str, Callable[[], float]],
    rounds: int,
    *,
    warm: bool = True,
    hopeless: float = math.inf,
    budget: float = math.inf,
    stay: Collection[str] = (),
) -> dict[str, float]:
    """Returns the median seconds of each.

    Each takes its turn after a pause, in every other round in the opposite order, so that none is
    always next to the same one.

    Args:
      clocks: what runs once and gives its seconds, compiled before.
      rounds: how many.
      warm: run for a while before each timed run, unless runs are long, to have one's own
        arguments in the cache and one's own threads awake.
      hopeless: times the fastest: what is slower after three rounds takes no more turns, and what
        is three times slower than that after one. No further ones would bring it near.
      budget: seconds, after which three rounds are enough.
      stay: names of those that are never out.
    """
    deadline = time.monotonic() + budget
    seconds: dict[str, list[float]] = {name: [] for name in clocks}
    left = list(clocks)
    for turn in range(rounds):
        if turn >= _ENOUGH and time.monotonic() > deadline:
            break
        for name in left[:: 1 if turn % 2 else -1]:
            time.sleep(PAUSE)
            if warm and not (seconds[name] and seconds[name][-1] > LONG):
                _warm(clocks[name])
            seconds[name].append(clocks[name]())
        medians = {name: statistics.median(seconds[name]) for name in left}
        fastest = min(medians.values(), default=0.0)  # none, where all were wrong
        limit = hopeless * fastest * (1 if turn + 1 >= _ENOUGH else _AT_ONCE)
        left = [name for name in left if name in stay or medians[name] <= limit]
    return {name: statistics.median(values) for name, values in seconds.items()}


def _warm(clock: Callable[[], float]) -> None:
    start = time.perf_counter()
    clock()
    while time.perf_counter() < start + WARM:
        clock()


def alternately(
    runs: Mapping[str, Callable[[], Any]], repeats: int, *, warm: bool = False
) -> dict[str, float]:
    """Returns the median seconds of functions, which are compiled first, as :func:`in_turn`."""
    for run in runs.values():
        jax.block_until_ready(run())
    return in_turn({name: timed(run) for name, run in runs.items()}, repeats, warm=warm)
