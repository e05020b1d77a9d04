"""Lists, verifies and times what can compute a problem, for the sub-commands of ``tune``."""

import math
from collections.abc import Sequence
from typing import Any

import jax
from absl import flags

from jaxatr import kernels
from jaxatr.kernels import database
from jaxatr.kernels.benchmark import Bench
from jaxatr.kernels.device import describe
from jaxatr.kernels.find import half_of_memory
from jaxatr.kernels.solver import Choice, Config, Solver, operation_of

EXIT_WRONG = 1


def define_flags() -> None:
    """Defines the flags that every such sub-command has."""
    flags.DEFINE_bool("list", False, "Only list what can compute it.")
    flags.DEFINE_bool("verify", True, "Compare every solver, in each configuration, with float64.")
    flags.DEFINE_bool("time", True, "Time the solvers, and keep the best in the database.")
    flags.DEFINE_float("budget", 20.0, "Seconds of measuring for each problem.")


def drive_all(problems: Sequence[Any], arguments: Sequence[str]) -> int:
    """Does what the flags say with several problems.

    Args:
      problems: what to compute.
      arguments: what the command line has besides flags, which must be nothing.

    Returns:
      The exit code.

    Raises:
      ValueError: there are arguments.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write -n 32 or --n=32")
    wrong = sum(_drive_if_possible(problem) for problem in problems)
    return EXIT_WRONG if wrong else 0


def _drive_if_possible(problem: Any) -> int:
    """Says what cannot be measured at all, and lets the other problems have their turn."""
    try:
        return drive(problem)
    except (RuntimeError, MemoryError) as error:
        print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
        return 1


def drive(problem: Any) -> int:
    """Does what the flags say with a problem, and prints it.

    Returns:
      How many solvers gave a wrong result or failed.
    """
    device = jax.local_devices()[0]
    operation, here = operation_of(problem), describe(device)
    problem = operation.canonical(problem, here)
    solvers = [one for one in operation.solvers.values() if one.applies(problem, here)]
    print(f"{problem.key} on {here.kind}", flush=True)
    if flags.FLAGS.list:
        for solver in solvers:
            count, memory = len(solver.configs(problem)), solver.workspace_bytes(problem)
            print(f"  {solver.name:<12} {count:>3} configurations  {memory / 2**20:>9.2f} MiB")
        return 0
    wrong = _verify(problem, solvers) if flags.FLAGS.verify else 0
    if flags.FLAGS.time:
        _time(problem)
        kept = database.user_file(here)
        if database.mode() != "none" and problem.key in database.entries(kept):
            print(f"  the best is kept in {kept}")
    return wrong


def _verify(problem: Any, solvers: Sequence[Solver]) -> int:
    """Returns how many solvers were wrong or failed; what it drew is gone before they are timed."""
    device, operation = jax.local_devices()[0], operation_of(problem)
    allowed = operation.tolerance(problem, describe(device))
    bench, limit, wrong = Bench(operation, problem, device), half_of_memory(device), 0
    for solver in solvers:
        if (memory := solver.workspace_bytes(problem)) <= limit:
            wrong += not _verified(bench, solver, allowed)
        else:  # the system would end the process
            print(f"  {solver.name:<12} left out: wants {memory / 2**20:.0f} MiB", flush=True)
    return wrong


def _verified(bench: Bench, solver: Solver, allowed: float) -> bool:
    """Compares each configuration, and prints the largest error and every failure."""
    errors = []
    for config in solver.configs(bench.problem):
        label = " ".join(word for word in (f"  {solver.name:<12}", _listed(config)) if word)
        try:
            errors.append(bench.error(Choice(solver.name, config)))
        except Exception as failure:  # a compiler or a kernel may raise anything
            print(f"{label} FAILED: {type(failure).__name__}: {failure}", flush=True)
            errors.append(math.inf)
        else:
            if errors[-1] > allowed:
                print(f"{label} WRONG: error {errors[-1]:.1e}, allowed {allowed:.1e}", flush=True)
    right = max(errors) <= allowed
    if right:
        error = f"error {max(errors):.1e}, allowed {allowed:.1e}"
        print(f"  {solver.name:<12} verified: {error}", flush=True)
    return right


def _time(problem: Any) -> None:
    for one in kernels.find(problem, budget_seconds=flags.FLAGS.budget):
        config = _listed(one.config)
        memory = one.workspace_bytes / 2**20
        print(f"  {one.algorithm:<12} {config:<16} {one.milliseconds:>10.3f} ms {memory:>9.2f} MiB")


def _listed(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config)
