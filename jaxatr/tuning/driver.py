"""Lists, verifies and times the solvers of a problem, for the sub-commands of ``tune``."""

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
    """Defines the flags that all of these sub-commands have."""
    flags.DEFINE_bool("list", False, "Only list the solvers that apply.")
    flags.DEFINE_bool(
        "verify", True, "Compare every solver, in each configuration, with a float64 reference."
    )
    flags.DEFINE_bool("time", True, "Time the solvers and save the fastest in the database.")
    flags.DEFINE_float("budget", 20.0, "Seconds of compiling and measuring for each problem.")


def drive_all(problems: Sequence[Any], arguments: Sequence[str]) -> int:
    """Lists, verifies and times the solvers of several problems, as the flags say.

    Args:
      problems: problems of any operation.
      arguments: the arguments of the command line that are not flags; there must be none.

    Returns:
      The exit code, 1 if any solver was wrong or failed.

    Raises:
      ValueError: there are arguments, or ``--budget`` is not positive.
    """
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is not a flag: write -n 32 or --n=32")
    if not (budget := flags.FLAGS.budget) > 0:  # otherwise found only after the first verification
        raise ValueError(f"--budget: got {budget}, wanted more than 0 seconds")
    wrong = sum(_drive_if_possible(problem) for problem in problems)
    return EXIT_WRONG if wrong else 0


def _drive_if_possible(problem: Any) -> int:
    """Measures a problem; a failure is printed and does not stop the other problems."""
    try:
        return drive(problem)
    except (RuntimeError, MemoryError) as error:
        print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
        return 1


def drive(problem: Any) -> int:
    """Lists, verifies and times the solvers of a problem, as the flags say.

    Returns:
      The number of solvers that gave a wrong result or failed.
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
            print(f"  the fastest is saved in {kept}")
    return wrong


def _verify(problem: Any, solvers: Sequence[Solver]) -> int:
    """Counts the solvers that were wrong or failed.

    The arguments and the reference are freed on return, before the solvers are timed.
    """
    device, operation = jax.local_devices()[0], operation_of(problem)
    allowed = operation.tolerance(problem, describe(device))
    bench, limit, wrong = Bench(operation, problem, device), half_of_memory(device), 0
    for solver in solvers:
        if (memory := solver.workspace_bytes(problem)) <= limit:
            wrong += not _verified(bench, solver, allowed)
        else:  # the system would kill the process
            print(f"  {solver.name:<12} left out: needs {memory / 2**20:.0f} MiB", flush=True)
    return wrong


def _verified(bench: Bench, solver: Solver, allowed: float) -> bool:
    """Verifies each configuration of a solver; prints the largest error and every failure."""
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
