"""Times contenders in turn, in one process or in several; shared by the benchmarks."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
from clock import LONG

PAUSE = 0.005  # seconds; PyTorch's threads keep spinning after their work and would interfere
# Sleeping threads wake on the core that calls them. The first milliseconds after a pause therefore
# run as on a single core if a library's threads sleep at once, but not if they spin.
WARM = 0.03  # seconds
_ENOUGH = 3  # rounds after which a contender may be dropped and the budget applies
_AT_ONCE = 3  # a contender this many times slower than the limit is dropped after one round


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """Returns a function that runs ``run`` once, waits for its result and returns the seconds."""

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
    """Times contenders in turn and returns the median seconds of each.

    Each takes its turn after a pause. Every other round is in the opposite order, so that no
    contender always follows the same one.

    Args:
      clocks: functions by name that run a contender once and return the seconds; already compiled.
      rounds: number of rounds.
      warm: whether to run for a moment before each timed run, unless runs are long, so that the
        contender's arguments are in the cache and its threads are awake.
      hopeless: multiple of the fastest time: slower contenders are dropped after three rounds, and
        after one round if they exceed three times this limit.
      budget: seconds after which three rounds are enough.
      stay: names of contenders that are never dropped.
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
        fastest = min(medians.values(), default=0.0)  # there may be no contenders
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
    """Compiles functions and times them in turn; returns the median seconds of each."""
    for run in runs.values():
        jax.block_until_ready(run())
    return in_turn({name: timed(run) for name, run in runs.items()}, repeats, warm=warm)
