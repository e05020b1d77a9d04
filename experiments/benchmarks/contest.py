"""Compares the automatic choice with single forms and PyTorch, for kernels.py and recurrent.py.

Each problem is recorded as soon as it is measured. Run again, a script continues where it stopped
and repeats failed problems. Two copies of the same program can differ in speed for as long as they
are in memory, so ``--again 0.9`` repeats the timing, without another find step, of the choices that
seemed slower than 0.9 of a single form's speed, and keeps both measurements.
"""

import argparse
import dataclasses
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from alternating import in_turn, timed
from ceilings import kept, reached
from clock import several
from recording import PEERS, Recording, ratio
from torch_peer import Torch

from jaxatr import kernels
from jaxatr.kernels import choosing
from jaxatr.kernels.device import describe
from jaxatr.kernels.solver import Choice, Operation

RESULTS = Path(__file__).parent / "results"
HOPELESS = 4.0  # multiple of the fastest time; slower forms are not timed in every round


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that both scripts share."""
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="time for the rounds; three are always run"
    )
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of each find step")
    parser.add_argument("--database", type=Path, help="folder for the results of the find steps")
    parser.add_argument("--again", type=float, help="repeat the timing of choices below this ratio")
    parser.add_argument("--output", type=Path, help="without suffix; default: by device and dtype")


@dataclasses.dataclass
class Contest:
    """A comparison of contenders on the problems of an operation.

    Attributes:
      operation: the operation.
      programs: ``(problem, algorithms) -> {name: (function, arguments)}``, the programs to compile,
        ``"auto"`` first.
      work: ``problem -> (flops, bytes)``, the work by the definition.
    """

    operation: Operation
    programs: Callable[[Any, list[str]], dict[str, tuple[Callable, tuple]]]
    work: Callable[[Any], tuple[float, float]]

    def hold(
        self, name: str, listed: Iterable[tuple[dict[str, Any], Any]], options: argparse.Namespace
    ) -> Recording:
        """Measures the problems that are not recorded yet, and returns the record.

        Args:
          name: the beginning of the record's name.
          listed: pairs of the fields that identify a problem's row and the problem.
          options: the options of :func:`add_options`.
        """
        device = jax.local_devices()[0]
        about = {"device": describe(device).kind, "jax": jax.__version__, "dtype": options.dtype}
        about |= {"rounds": options.rounds, "seconds": options.seconds, "budget": options.budget}
        about["peers"] = {name: version(name) for name in ("torch", "flax")}
        output = options.output or RESULTS / f"{name}_{device.platform}_{options.dtype}"
        recording, torch = Recording(output, about), Torch()
        ceilings = kept(recording.about, options.dtype)
        with tempfile.TemporaryDirectory() as temporary:
            # A separate database, so that only the find steps of this run count.
            os.environ["JAXATR_CACHE"] = str(options.database or temporary)
            for key, problem in listed:
                if not recording.has(key):
                    row = self._row(problem, options, torch)
                    if times := row["milliseconds"]:
                        row["auto"] = reached(*self.work(problem), times["auto"], ceilings)
                    recording.add(key, row)
                    print(key | row, flush=True)
                elif self._doubted(problem, row := recording.row(key), options.again):
                    again = self._times(problem, forms(row), options, None)
                    recording.add(key, row | {"again": again})
                    print(key | {"again": again}, flush=True)
        torch.close()
        return recording

    def _row(self, problem: Any, options: argparse.Namespace, torch: Torch) -> dict[str, Any]:
        try:
            return self._measure(problem, options, torch)
        except Exception as error:  # a kernel that raises must not end a run of hours
            message = f"{type(error).__name__}: {error}"[:1000]
            return {"milliseconds": {}, "failed": {"problem": message}}

    def _doubted(self, problem: Any, row: dict[str, Any], limit: float | None) -> bool:
        """Returns whether an unchanged choice was slower than a ratio to the best single form."""
        if limit is None or "again" in row or ratio(row, "best") >= limit:
            return False
        return written(self._choice(problem)) == row["chosen"]

    def _measure(self, problem: Any, options: argparse.Namespace, torch: Torch) -> dict[str, Any]:
        """Returns the median milliseconds of each contender, timed in turn, and the failures."""
        performances = kernels.find(problem, budget_seconds=options.budget)
        slow = hopeless(performances)
        names = [
            name
            for name in dict.fromkeys(one.algorithm for one in performances)
            if name not in slow
        ]
        choice = self._choice(problem)
        version = self.operation.solvers[choice.algorithm].version
        row: dict[str, Any] = {"chosen": written(choice), "version": version}
        row["from_find"] = sorted(slow)
        try:
            torch.take(self.operation.name, problem)
            peer: Torch | None = torch
        except RuntimeError as error:
            row["failed"], peer = {"torch": str(error)}, None
        times = self._times(problem, names, options, peer)
        slow = {name: round(value, 4) for name, value in slow.items()}
        return row | {"milliseconds": slow | times}

    def _times(
        self, problem: Any, names: list[str], options: argparse.Namespace, torch: Torch | None
    ) -> dict[str, float]:
        """Returns the median milliseconds of the choice, the single forms and the peers."""
        programs = compiled(self.programs(problem, names))
        first = {run: name for name, run in reversed(programs.items())}
        clocks = {name: several(timed(run)) for run, name in first.items()}
        if torch is not None:
            clocks["torch"] = torch.seconds
        seconds = in_turn(
            clocks,
            options.rounds,
            hopeless=HOPELESS,
            budget=options.seconds,
            stay=(first[programs["auto"]], "torch"),
        )
        seconds |= {name: seconds[first[run]] for name, run in programs.items()}
        return {name: round(1e3 * value, 4) for name, value in seconds.items()}

    def _choice(self, problem: Any) -> Choice:
        here = describe(jax.local_devices()[0])
        canonical = self.operation.canonical(problem, here)
        return choosing.current().choose(self.operation, canonical, here)


def written(choice: Choice) -> str:
    """Returns a choice as the text in a row, such as ``"split pieces=32"``."""
    return " ".join([choice.algorithm, *(f"{name}={value}" for name, value in choice.config)])


def read(text: str) -> Choice:
    """Parses the text of a choice; the inverse of :func:`written`."""
    algorithm, *config = text.split()
    pairs = (one.split("=") for one in config)
    return Choice(algorithm, tuple((k, int(v) if v.isdigit() else v) for k, v in pairs))


def forms(row: dict[str, Any]) -> list[str]:
    """Returns the single forms of a row that were timed in turn."""
    return [name for name in row["milliseconds"] if name not in (*PEERS, *row["from_find"])]


def hopeless(performances: Iterable[kernels.Performance]) -> dict[str, float]:
    """Returns the milliseconds of the forms that are too slow to be timed in turn.

    Such a form can take seconds per run, so the time of the find step is used instead. XLA's form
    is always timed, because its losses are reported.
    """
    best: dict[str, float] = {}
    for one in performances:
        best[one.algorithm] = min(one.milliseconds, best.get(one.algorithm, math.inf))
    limit = HOPELESS * min(best.values())
    return {name: value for name, value in best.items() if value > limit and name != "xla"}


def _operations(text: str) -> str:
    """Returns the computations of an HLO text with numbered names and without metadata."""
    _, *computations = re.split(r"^(?=%|ENTRY)", text, flags=re.MULTILINE)
    bare = re.sub(r", metadata={[^}]*}", "", "".join(computations))
    bare = re.sub(r"[\w.-]+: ", "", bare)  # names of parameters
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), bare)


def compiled(programs: Mapping[str, tuple[Callable, tuple]]) -> dict[str, Callable[[], object]]:
    """Compiles each program and runs it once.

    Identical programs under two names, such as the choice and the form that was chosen, share one
    function; timed separately, one of them would seem faster. Forms that are written differently
    can be identical after compilation.

    Args:
      programs: functions and their arguments by name.
    """
    distinct: dict[tuple[str, int], Callable[[], object]] = {}
    runs = {}
    for name, (function, arguments) in programs.items():
        lowered = jax.jit(function).lower(*arguments)
        program = lowered.compile()
        text = program.as_text()  # empty on some platforms
        same = _operations(text) if text else lowered.as_text(), id(arguments)
        if same not in distinct:
            distinct[same] = partial(program, *arguments)
            jax.block_until_ready(distinct[same]())
        runs[name] = distinct[same]
    return runs
