"""What the sub-commands of single operations share: list, verify and time what can compute it."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
from absl import flags

from jaxatr import kernels
from jaxatr.kernels import database
from jaxatr.kernels.device import describe
from jaxatr.kernels.programs import Bench
from jaxatr.kernels.solver import Choice, operation_of

EXIT_WRONG = 1


def define_flags() -> None:
    """Defines the flags that every such sub-command has."""
    flags.DEFINE_bool("list", False, "Only list what can compute it.")
    flags.DEFINE_bool("verify", True, "Compare every solver with the reference in float64.")
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
    wrong = sum(drive(problem) for problem in problems)
    return EXIT_WRONG if wrong else 0


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
    wrong = 0
    if flags.FLAGS.verify:
        bench, allowed = Bench(operation, problem, device), operation.tolerance(problem, here)
        for solver in solvers:
            choice = Choice(solver.name, solver.configs(problem)[0])
            wrong += not _verified(bench, choice, allowed)
    if flags.FLAGS.time:
        _time(problem)
        if database.mode() != "none":
            print(f"  the best is kept in {database.user_file(here)}")
    return wrong


def _verified(bench: Bench, choice: Choice, allowed: float) -> bool:
    try:
        error = bench.error(choice)
    except Exception as failure:  # a compiler or a kernel may raise anything
        print(f"  {choice.algorithm:<12} FAILED: {type(failure).__name__}: {failure}", flush=True)
        return False
    verdict = "verified" if error <= allowed else "WRONG"
    print(
        f"  {choice.algorithm:<12} {verdict}: error {error:.1e}, allowed {allowed:.1e}", flush=True
    )
    return error <= allowed


def _time(problem: Any) -> None:
    with warnings.catch_warnings():
        if flags.FLAGS.verify:  # it has been said which these are
            warnings.filterwarnings("ignore", message=".*left out")
        found = kernels.find(problem, budget_seconds=flags.FLAGS.budget)
    for one in found:
        config = " ".join(f"{name}={value}" for name, value in one.config)
        memory = one.workspace_bytes / 2**20
        print(f"  {one.algorithm:<12} {config:<16} {one.milliseconds:>10.3f} ms {memory:>9.2f} MiB")
