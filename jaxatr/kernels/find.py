"""The find step: times the solvers of a problem and keeps the fastest (MIOpen, section IV.A)."""

import math
import os
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from jaxatr import memory
from jaxatr.kernels import database
from jaxatr.kernels.benchmark import Bench
from jaxatr.kernels.device import Device, describe
from jaxatr.kernels.entries import Entry
from jaxatr.kernels.solver import Choice, Config, Operation, operation_of

# A candidate whose first time exceeds this multiple of the best is dropped, and a solver whose
# default configuration exceeds it is not tried in any other.
_HOPELESS = 3.0
_FINALISTS = 3
_ROUNDS = 9  # of timing all finalists in turn
_LEAST = 3  # rounds even when the budget is spent, so that a single lucky run never decides


class Performance(NamedTuple):
    """The measured performance of a solver in one configuration.

    Attributes:
      algorithm: the solver's name.
      config: the configuration.
      milliseconds: the median time of a run.
      workspace_bytes: the solver's estimate of its memory besides arguments and result.
    """

    algorithm: str
    config: Config
    milliseconds: float
    workspace_bytes: int


def find(
    problem: Any,
    *,
    device: Any = None,
    workspace_limit: int | None = None,
    budget_seconds: float = 20.0,
) -> list[Performance]:
    """Times the solvers of a problem on a device and returns them, the fastest first.

    Every applicable solver first runs in its default configuration. The other configurations
    follow, except for solvers whose default took more than three times the best. The candidates
    are then timed in turn (:meth:`~jaxatr.kernels.benchmark.Bench.milliseconds`) under successive
    halving: the slower half is dropped, the number of rounds doubles, and the last three are timed
    longest. All configurations of all solvers compete in one list, and a slow one costs only a
    compilation and three runs.

    A candidate is timed only if its result on random data agrees with the operation's float64
    reference (:func:`~jaxatr.kernels.benchmark.relative_error`). Candidates that fail are named in
    a warning and left out.

    The fastest is saved in the user's database, unless ``workspace_limit`` is given or the
    environment has ``JAXATR_FIND=none``.

    Args:
      problem: a problem of any operation, such as
        :class:`~jaxatr.kernels.ops.convolution.problem.ConvProblem`.
      device: a ``jax.Device``; by default jax's first.
      workspace_limit: the most bytes that a solver may use besides arguments and result, by its
        own estimate; by default half of the device's memory.
      budget_seconds: time for compiling and measuring, not counting the reference. When it is
        spent, configurations that have not run yet are left out; every solver's default is always
        tried, and the last three always run at least three times.

    Returns:
      The performance of each candidate: the finalists by their median time, then the others, the
      last to be dropped first.

    Raises:
      ValueError: no operation is registered for ``problem``, or ``budget_seconds`` is not positive.
      RuntimeError: no candidate gave the right result; the failures are listed.
    """
    if not budget_seconds > 0:
        raise ValueError(f"budget_seconds: got {budget_seconds}, wanted more than 0")
    operation = operation_of(problem)
    device = jax.local_devices()[0] if device is None else device
    here = describe(device)
    problem = operation.canonical(problem, here)
    limit = half_of_memory(device) if workspace_limit is None else workspace_limit
    race = _Race(operation, problem, device, limit, budget_seconds)
    performances = race.run()
    memory.give_back()  # slow candidates can use many times the memory of fast ones
    if workspace_limit is None and database.mode() != "none":
        database.store(here, {problem.key: _entry(operation, performances[0])})
    return performances


def found_choice(problem: Any) -> Choice | None:
    """Returns the fastest choice by :func:`find`, or ``None`` with a warning if measuring fails."""
    try:
        best = find(problem)[0]
    except (RuntimeError, MemoryError) as error:  # the reference can exceed the memory
        warnings.warn(
            f"{problem.key}: not measured, the heuristic decides: {error!r}", stacklevel=3
        )
        return None
    return Choice(best.algorithm, best.config)


def _entry(operation: Operation, best: Performance) -> Entry:
    version = operation.solvers[best.algorithm].version
    choice = Choice(best.algorithm, best.config)
    return Entry(choice, best.milliseconds, version, jax.__version__)


def half_of_memory(device: Any) -> int:
    """Returns half of a jax device's memory in bytes, the default limit of a solver."""
    stats = device.memory_stats() or {}
    total = stats.get("bytes_limit")
    if total is None:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total // 2


class _Race:
    """The candidates of one problem and their times so far."""

    def __init__(self, operation: Operation, problem: Any, device: Any, limit: int, budget: float):
        here = describe(device)
        self._operation, self._problem = operation, problem
        self._names = _within(operation, problem, here, limit)
        self._allowed = operation.tolerance(problem, here)
        self._failures: list[str] = []
        self._times: dict[Choice, list[float]] = {}
        self._out: list[Choice] = []  # the last to be dropped first
        self._bench = Bench(operation, problem, device)
        self._deadline = time.monotonic() + budget

    def run(self) -> list[Performance]:
        configs = {name: self._configs(name) for name in self._names}
        for name, own in configs.items():
            self._enter(Choice(name, own[0]))
        best = min((min(times) for times in self._times.values()), default=math.inf)
        for name, own in configs.items():
            first = self._times.get(Choice(name, own[0]))
            if first is not None and min(first) <= _HOPELESS * best:
                for config in own[1:]:
                    if time.monotonic() < self._deadline:
                        self._enter(Choice(name, config))
        message = f"{self._problem.key}: left out: {'; '.join(self._failures) or 'nothing'}"
        if not self._times:
            raise RuntimeError(f"no solver can be used, among {self._names}: {message}")
        if self._failures:
            warnings.warn(message, stacklevel=3)
        self._leave_out_hopeless()
        self._halve()
        return [self._performance(choice) for choice in [*self._ranked(), *self._out]]

    def _configs(self, name: str) -> Sequence[Config]:
        return self._operation.solvers[name].configs(self._problem)

    def _enter(self, choice: Choice) -> None:
        """Compiles and checks a candidate, and keeps the faster of two times.

        The first run after a compilation can take ten times as long as later ones, because its
        memory is freshly allocated. Such a cold first run must not disqualify a candidate.
        """
        label = f"{choice.algorithm} {dict(choice.config) or ''}".strip()
        try:
            error = self._bench.error(choice)
            if error > self._allowed:
                why = f"is wrong by {error:.2e}, allowed {self._allowed:.2e}"
                self._failures.append(f"{label} {why}")
                return
            self._times[choice] = [min(self._bench.milliseconds(choice) for _ in range(2))]
        except Exception as error:  # a compiler or a kernel may raise anything
            self._failures.append(f"{label} failed with {type(error).__name__}: {error}")

    def _leave_out_hopeless(self) -> None:
        ranked = self._ranked()
        limit = _HOPELESS * self._times[ranked[0]][0]
        self._out = [choice for choice in ranked if self._times[choice][0] > limit]

    def _halve(self) -> None:
        rounds = 1
        while len(self._times) - len(self._out) > _FINALISTS:
            self._take_turns(rounds)
            ranked = self._ranked()
            self._out[:0] = ranked[max(_FINALISTS, math.ceil(len(ranked) / 2)) :]
            rounds *= 2
        self._take_turns(_ROUNDS, least=_LEAST)

    def _take_turns(self, rounds: int, least: int = 0) -> None:
        for number in range(rounds):
            if number >= least and time.monotonic() >= self._deadline:
                return
            for choice in self._ranked():
                self._times[choice].append(self._bench.milliseconds(choice))

    def _ranked(self) -> list[Choice]:
        """Returns the remaining candidates in order of their median time."""
        left = [choice for choice in self._times if choice not in self._out]
        return sorted(left, key=lambda choice: statistics.median(self._times[choice]))

    def _performance(self, choice: Choice) -> Performance:
        workspace = self._operation.solvers[choice.algorithm].workspace_bytes(self._problem)
        milliseconds = statistics.median(self._times[choice])
        return Performance(choice.algorithm, choice.config, milliseconds, workspace)


def _within(operation: Operation, problem: Any, device: Device, limit: int) -> list[str]:
    """Returns the applicable solvers whose estimated workspace is at most ``limit`` bytes."""
    return [
        name
        for name, solver in operation.solvers.items()
        if solver.applies(problem, device) and solver.workspace_bytes(problem) <= limit
    ]
