"""Compiles, checks and times the candidate algorithms of a single problem."""

import contextlib
import math
import statistics
import time
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from jaxatr.kernels.device import describe
from jaxatr.kernels.solver import Choice, Operation
from jaxatr.typing import ArrayLike

_MOMENT = 0.01  # seconds of warm-up before short runs are timed, and of timed runs after it


@lru_cache(maxsize=256)
def program(operation: Operation, problem: Any, choice: Choice, device: Any) -> Any:
    """Returns the jitted function that computes a problem with a choice of algorithm.

    Functions are cached, and with each its compiled program.
    """
    return jax.jit(operation.function(problem, choice, describe(device)))


def relative_error(result: ArrayLike, reference: np.ndarray) -> float:
    """Returns MIOpen's error measure: the RMS difference divided by the largest reference value.

    It is infinite if the shapes differ or a result is not finite, and 0 for empty results.
    """
    if result.shape != reference.shape:
        return float("inf")
    if reference.size == 0:
        return 0.0
    difference = np.asarray(result).astype(np.float64) - reference
    rms = float(np.sqrt(np.mean(difference**2)))
    largest = float(np.max(np.abs(reference)))
    error = rms / largest if largest else rms
    return error if np.isfinite(error) else float("inf")


class Bench:
    """Random arguments of a problem on a device, and the reference result."""

    def __init__(self, operation: Operation, problem: Any, device: Any):
        """Draws the arguments and computes the reference result."""
        drawn = operation.arguments(problem, np.random.default_rng(0))
        self.operation, self.problem, self.device = operation, problem, device
        self._reference = operation.reference(problem, drawn)
        leaves = jax.tree.leaves(drawn)
        doubles = any(array.dtype == np.float64 for array in leaves)  # jax would round to float32
        self._wide = jax.enable_x64(True) if doubles else contextlib.nullcontext()
        self._queued = describe(device).platform != "cpu"
        with self._wide:
            self._arguments = jax.device_put(drawn, device)

    def error(self, choice: Choice) -> float:
        """Returns the :func:`relative_error` of a choice, the largest over its results.

        The first call compiles the choice.
        """
        results, wanted = jax.tree.leaves(self.run(choice)), jax.tree.leaves(self._reference)
        return max(relative_error(*pair) for pair in zip(results, wanted, strict=True))

    def run(self, choice: Choice, times: int = 1) -> Any:
        """Runs a choice ``times`` times, waits for it, and returns the last result."""
        run, result = program(self.operation, self.problem, choice, self.device), None
        with self._wide:
            for _ in range(times):
                result = run(*self._arguments)
            return jax.block_until_ready(result)

    def milliseconds(self, choice: Choice) -> float:
        """Returns the time of one run; for short runs, the median of several.

        Short runs are warmed up first, to wake sleeping threads and refill the cache after another
        choice has run. On an accelerator, short runs are queued in batches, because the time of a
        single one would include the launch and the synchronization.
        """
        first = self._seconds(choice)
        if first >= _MOMENT:
            return 1e3 * first
        times = math.ceil(_MOMENT / first) if self._queued else 1
        self._for_a_moment(choice, times)
        return 1e3 * statistics.median(self._for_a_moment(choice, times))

    def _for_a_moment(self, choice: Choice, times: int) -> list[float]:
        seconds = [self._seconds(choice, times)]
        while times * sum(seconds) < _MOMENT:
            seconds.append(self._seconds(choice, times))
        return seconds

    def _seconds(self, choice: Choice, times: int = 1) -> float:
        start = time.perf_counter()
        self.run(choice, times)
        return (time.perf_counter() - start) / times
