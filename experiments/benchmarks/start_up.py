"""Times how long the commands take to start: imports, help pages, one chip, a first step.

Every row is a command in a process of its own, from its start to its end. The rows take turns, and
the record has the medians of wall and of processor seconds (of all threads, user and system). A
small run is trained first, as ``jaxatr train --config=cbc:smoke`` does. Rows marked "compiled" find
their programs in a compilation cache, which a turn that does not count fills; ``cold`` has none.
The training step is that of ``training_step.py``, and its process ends after the step.

Run: python experiments/benchmarks/start_up.py [--turns 7] [--rows predict] [--run FOLDER]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recording import table
from small_run import sample_chips, trained
from training_step import HERE, machine

import jaxatr
from jaxatr.cli.main import COMMANDS

OUTPUT = HERE / "results" / "start_up_cpu.json"
AIMS = {
    "import jaxatr": 0.5,
    **{f"{name} --help": 1.0 for name in COMMANDS},
    "predict, compiled": 2.0,
    "explain by Grad-CAM, compiled": 4.0,
    "first step, compiled": 4.0,
    "first step, cold": 15.0,
}
"""Wall seconds to stay below, by row."""


class Seconds(NamedTuple):
    """The time that a process took.

    Attributes:
      wall: from its start to its end.
      cpu: of its threads and of the processes that it waited for, user and system.
    """

    wall: float
    cpu: float


def commands(run: Path, chip: Path, scratch: Path) -> dict[str, list[str]]:
    """Returns the arguments of Python, by row.

    Args:
      run: folder of a run.
      chip: an image of its data.
      scratch: folder for the results and the cache of the training step.
    """
    command = ["-c", "from jaxatr.cli.main import main; main()"]  # as the script jaxatr
    one_chip = [f"--workdir={run}", str(chip)]
    maps = [f"--out={scratch / 'maps'}", "--method=grad_cam"]
    step = [str(HERE / "step_jax.py")]
    return {
        "import jax": ["-c", "import jax"],
        "import jaxatr": ["-c", "import jaxatr"],
        **{f"{name} --help": [*command, name, "--help"] for name in COMMANDS},
        "predict, compiled": [*command, "predict", *one_chip],
        "explain by Grad-CAM, compiled": [*command, "explain", *one_chip, *maps],
        "first step, compiled": [*step, f"--cache={scratch / 'steps'}"],
        "first step, cold": step,
    }


def took(arguments: list[str], environment: Mapping[str, str]) -> Seconds:
    """Runs Python and measures the process.

    Raises:
      RuntimeError: the process failed; the message is its standard error.
    """
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
        )
        _, status, usage = os.wait4(process.pid, 0)  # unlike wait(), it tells the usage
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(arguments)}: {said.read()}")
    return Seconds(wall, usage.ru_utime + usage.ru_stime)


def measured(
    rows: Mapping[str, list[str]], turns: int, environment: Mapping[str, str]
) -> dict[str, list[Seconds]]:
    """Runs the rows in turn, after a turn that does not count; every other turn is in reverse."""
    seconds: dict[str, list[Seconds]] = {name: [] for name in rows}
    for turn in range(turns + 1):
        for name in list(rows)[:: -1 if turn % 2 else 1]:
            one = took(rows[name], environment)
            if turn:
                seconds[name].append(one)
    return seconds


def summary(seconds: Mapping[str, list[Seconds]]) -> dict[str, dict[str, Any]]:
    """Returns the median, least and greatest seconds of each row, and its aim."""
    rows = {}
    for name, every in seconds.items():
        wall, cpu = zip(*every, strict=True)
        rows[name] = {
            "wall_s": round(statistics.median(wall), 2),
            "cpu_s": round(statistics.median(cpu), 2),
            "wall_range_s": [round(min(wall), 2), round(max(wall), 2)],
            "cpu_range_s": [round(min(cpu), 2), round(max(cpu), 2)],
            "aim_s": AIMS.get(name),
        }
    return rows


def page(record: Mapping[str, Any]) -> str:
    """Returns the record as a page of Markdown."""
    rows = [
        (name, f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}", f"{row['aim_s'] or '':}")
        for name, row in record["rows"].items()
    ]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = table(("process", "wall s", "processor s", "aim, wall s"), *rows)
    return (
        f"Made by `start_up.py`. {record['device']}, {record['cores']} cores; {versions}; load at "
        f"the start {record['load_at_start']:.1f}; medians of {record['turns']} turns.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--rows", default="", help="only the rows that match this expression")
    parser.add_argument("--run", type=Path, help="folder of an existing run of cbc")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    record = {**machine(), "load_at_start": os.getloadavg()[0], "turns": options.turns}
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        environment = os.environ | {"JAXATR_COMPILATION_CACHE": str(scratch / "programs")}
        # An installed package has bytecode, which the turn that does not count writes.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        run, chip = options.run or scratch / "run", scratch / "chip.png"
        if not options.run:
            trained(run)
            jaxatr.evaluate(run)
        next(sample_chips(run, 1)).save(chip)
        rows = commands(run, chip, scratch)
        rows = {name: row for name, row in rows.items() if re.search(options.rows, name)}
        record["rows"] = summary(measured(rows, options.turns, environment))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=2) + "\n")
    options.output.with_suffix(".md").write_text(page(record))
    print(page(record))


if __name__ == "__main__":
    main()
