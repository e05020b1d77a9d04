"""The automatic choice beside every single form and PyTorch, for kernels.py and recurrent.py.

Each problem is recorded as soon as it is measured. Run again, a script goes on where it was, and
tries again what failed. Two copies of the very same program can differ for as long as they are in
memory: ``--again 0.9`` times once more, without another find step, the choices that seemed slower
than that beside a single form, and keeps both measurements.
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
HOPELESS = 4.0  # times the fastest: such a form is not timed in every round


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that both scripts have."""
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=6.0, help="of them; three are always run")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of each find step")
    parser.add_argument("--database", type=Path, help="folder that keeps what find steps choose")
    parser.add_argument("--again", type=float, help="time a choice below this ratio once more")
    parser.add_argument("--output", type=Path, help="without suffix; default: by device and dtype")


@dataclasses.dataclass
class Contest:
    """How the problems of an operation are measured.

    Attributes:
      operation: theirs.
      programs: ``(problem, algorithms) -> what to compile``, and its arguments, by name, ``"auto"``
        first.
      work: ``problem -> (flops, bytes)``, as its definition has them.
    """

    operation: Operation
    programs: Callable[[Any, list[str]], dict[str, tuple[Callable, tuple]]]
    work: Callable[[Any], tuple[float, float]]

    def hold(
        self, name: str, listed: Iterable[tuple[dict[str, Any], Any]], options: argparse.Namespace
    ) -> Recording:
        """Measures what is not recorded yet; returns the record.

        Args:
          name: the beginning of the record's.
          listed: what a problem's row begins with, by which it is known, and the problem.
          options: as :func:`add_options` has them.
        """
        device = jax.local_devices()[0]
        about = {"device": describe(device).kind, "jax": jax.__version__, "dtype": options.dtype}
        about |= {"rounds": options.rounds, "seconds": options.seconds, "budget": options.budget}
        about["peers"] = {name: version(name) for name in ("torch", "flax")}
        output = options.output or RESULTS / f"{name}_{device.platform}_{options.dtype}"
        recording, torch = Recording(output, about), Torch()
        ceilings = kept(recording.about, options.dtype)
        with tempfile.TemporaryDirectory() as temporary:
            # What was found in this run, and not by the way.
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
        except Exception as error:  # hours of others must not be lost with a kernel that raises
            message = f"{type(error).__name__}: {error}"[:1000]
            return {"milliseconds": {}, "failed": {"problem": message}}

    def _doubted(self, problem: Any, row: dict[str, Any], limit: float | None) -> bool:
        """Says whether a choice that is still the recorded one seemed slower than it should."""
        if limit is None or "again" in row or ratio(row, "best") >= limit:
            return False
        return written(self._choice(problem)) == row["chosen"]

    def _measure(self, problem: Any, options: argparse.Namespace, torch: Torch) -> dict[str, Any]:
        """Returns the median milliseconds of each, which take turns, and what failed."""
        found = kernels.find(problem, budget_seconds=options.budget)
        slow = hopeless(found)
        names = [name for name in dict.fromkeys(one.algorithm for one in found) if name not in slow]
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
        """Returns the median milliseconds of the choice, of single forms and of what is beside."""
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
    """Returns a choice as a row has it: ``"split pieces=32"``."""
    return " ".join([choice.algorithm, *(f"{name}={value}" for name, value in choice.config)])


def read(text: str) -> Choice:
    """Returns the choice that :func:`written` wrote."""
    algorithm, *config = text.split()
    pairs = (one.split("=") for one in config)
    return Choice(algorithm, tuple((k, int(v) if v.isdigit() else v) for k, v in pairs))


def forms(row: dict[str, Any]) -> list[str]:
    """Returns the single forms of a row that were timed in turns."""
    return [name for name in row["milliseconds"] if name not in (*PEERS, *row["from_find"])]


def hopeless(found: Iterable[kernels.Performance]) -> dict[str, float]:
    """Returns the milliseconds of what no further turn would bring near the best.

    Such a form can take seconds in each turn, so that its time is the one that ``find`` saw. XLA's
    takes part in every case, because what it loses is reported.
    """
    best: dict[str, float] = {}
    for one in found:
        best[one.algorithm] = min(one.milliseconds, best.get(one.algorithm, math.inf))
    limit = HOPELESS * min(best.values())
    return {name: value for name, value in best.items() if value > limit and name != "xla"}


def _operations(text: str) -> str:
    """Returns the computations of an HLO text, with numbers for names and nothing of the source."""
    _, *computations = re.split(r"^(?=%|ENTRY)", text, flags=re.MULTILINE)
    bare = re.sub(r", metadata={[^}]*}", "", "".join(computations))
    bare = re.sub(r"[\w.-]+: ", "", bare)  # of parameters
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), bare)


def compiled(programs: Mapping[str, tuple[Callable, tuple]]) -> dict[str, Callable[[], object]]:
    """Compiles each program, and runs it once.

    What is the same program under two names, as the choice and the form that was chosen are, is one
    function: timed as two, one of them would seem the faster. Forms that are written differently
    can be the same once they are compiled.

    Args:
      programs: functions of arrays, and the arrays.
    """
    found: dict[tuple[str, int], Callable[[], object]] = {}
    runs = {}
    for name, (function, arguments) in programs.items():
        lowered = jax.jit(function).lower(*arguments)
        program = lowered.compile()
        text = program.as_text()  # which not every platform has
        same = _operations(text) if text else lowered.as_text(), id(arguments)
        if same not in found:
            found[same] = partial(program, *arguments)
            jax.block_until_ready(found[same]())
        runs[name] = found[same]
    return runs
