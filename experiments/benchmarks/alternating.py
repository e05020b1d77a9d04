"""The clock that benchmarks in one process share."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def alternately(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Returns the median seconds of each, one after the other in every round."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())  # compiles
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}
