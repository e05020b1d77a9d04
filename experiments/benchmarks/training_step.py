"""Times a training step and inference of ResNet-18 against PyTorch, alternately.

Each case starts one process per contender: this package, and PyTorch in each of its settings. They
run a few steps each in turn, for a number of rounds, and medians are compared. A process that is
not at turn waits for its input. ``first_step.py`` times the startup of a new process.

This package keeps freed memory, as its commands do (``jaxatr.memory``). PyTorch does not, but
benefits from it: contenders marked "kept" keep memory too. There is one for every setting except
those that compile for inference, which were never the fastest and take a minute to start. Two
ratios are reported: to PyTorch's defaults and to its fastest setting.

By default the heuristic chooses the algorithms, without the database that comes with the package.
With ``--find`` the database chooses, and a separate process first measures the missing problems, as
a training run does with ``--config.kernels.find=true``; the heuristic is then a contender too. The
measurements are discarded afterwards, unless ``--database`` names a folder.

Run: python experiments/benchmarks/training_step.py [--sizes 32 64 128 224] [--batch 32] [--quick]
     [--modes training inference] [--find] [--database FOLDER]
"""

import argparse
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clock import cores
from recording import table

HERE = Path(__file__).parent
WARM, TURN = 0.06, 0.1  # seconds of warm-up and of timed steps in a turn
SETTINGS = {
    "training": ["eager", "compile"],
    "inference": ["eager", "jit", "onednn_graph", "compile", "compile_freezing"],
}
HEURISTIC = "jaxatr by the heuristic"  # where "jaxatr" uses the find step
QUICK = {"training": ["eager"], "inference": ["jit", "onednn_graph"]}


class Worker:
    """A contender in a separate process.

    Attributes:
      first_step: seconds from the start of the process to the end of its first step.
      seconds: the seconds of all timed steps.
      peak_mib: the peak resident memory in MiB.
    """

    def __init__(self, script: str, **options: object):
        """Starts the process and waits for its first step."""
        environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        if "find" in options:
            environment["JAXATR_FIND"] = "db" if options["find"] else "none"
        flags = [f"--{name}={value}" for name, value in options.items()]
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, HERE / script, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._read()
        self.first_step = time.perf_counter() - start
        self.seconds: list[float] = []
        self._usual = math.inf  # the usual seconds of a step
        self.peak_mib = 0.0

    def _read(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender exited early: {self._process.args}")
        return json.loads(line)

    def turn(self, steps: int) -> None:
        """Runs at least ``steps`` steps, more if they are short.

        The first steps of a turn have cold caches and sleeping threads (see alternating.py) and do
        not count.
        """
        assert self._process.stdin is not None
        warm = math.ceil(max(1, WARM / self._usual))
        counted = math.ceil(max(steps, TURN / self._usual))
        self._process.stdin.write(f"{warm + counted}\n")
        self._process.stdin.flush()
        answer = self._read()
        self.seconds += answer["seconds"][warm:]
        self._usual = statistics.median(answer["seconds"])
        self.peak_mib = answer["peak_mib"]

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(
    mode: str, size: int, options: argparse.Namespace, network: Mapping[str, object] | None = None
) -> dict:
    """Returns the measurements of one case.

    Args:
      mode: ``"training"`` or ``"inference"``.
      size: height and width of the images.
      options: the options of the command line.
      network: options of the workers that select a network other than ResNet-18.
    """
    common = {"mode": mode, "size": size, "batch": options.batch, **(network or {})}
    ours: dict[str, Any] = common | {"find": int(options.find)}
    finding, workers = {}, {}
    if options.find:
        finder = Worker("step_jax.py", **ours)
        finder.close()
        finding = {"finding_s": round(finder.first_step, 1)}
    try:
        workers["jaxatr"] = Worker("step_jax.py", **ours)
        if options.find:
            workers[HEURISTIC] = Worker("step_jax.py", **common, find=0)
        for setting in (QUICK if options.quick else SETTINGS)[mode]:
            for name, keep in ((f"torch {setting}", 0), (f"torch {setting} kept", 1)):
                if keep and mode == "inference" and "compile" in setting:
                    continue
                workers[name] = Worker(
                    "step_torch.py", **common, keep=keep, setting=setting, threads=options.threads
                )
        for turn in range(1 + options.rounds * (1 if size > 64 else 3)):
            for worker in workers.values():
                worker.turn(2 if size > 64 else 4)
                if turn == 0:
                    worker.seconds.clear()
    finally:
        for worker in workers.values():
            worker.close()
    contenders = {name: row(worker, options.batch) for name, worker in workers.items()}
    return summary(mode, size, contenders) | finding


def row(worker: Worker, batch: int) -> dict:
    """Returns the figures of one contender."""
    return {
        "images_per_s": round(batch / statistics.median(worker.seconds), 1),
        "median_ms": round(1e3 * statistics.median(worker.seconds), 2),
        "best_ms": round(1e3 * min(worker.seconds), 2),
        "peak_mib": round(worker.peak_mib),
        "first_step_s": round(worker.first_step, 1),
        "steps": len(worker.seconds),
    }


def summary(mode: str, size: int, contenders: dict) -> dict:
    """Returns the case with the ratios of our figures to PyTorch's."""
    others = {name: row for name, row in contenders.items() if name != HEURISTIC}
    case = {
        "mode": mode,
        "size": size,
        "as_started": ratios({k: v for k, v in others.items() if not k.endswith("kept")}),
        "fastest": ratios(others),
    }
    if HEURISTIC in contenders:
        case["heuristic"] = ratios({name: contenders[name] for name in ("jaxatr", HEURISTIC)})
    return case | {"contenders": contenders}


def ratios(contenders: dict) -> dict:
    """Returns the fastest of the other contenders and the ratios of our figures to its."""
    theirs = max(contenders.keys() - {"jaxatr"}, key=lambda name: contenders[name]["images_per_s"])
    speed, memory = (
        contenders["jaxatr"][figure] / contenders[theirs][figure]
        for figure in ("images_per_s", "peak_mib")
    )
    return {"theirs": theirs, "speed": round(speed, 3), "memory": round(memory, 2)}


def machine() -> dict:
    """Describes the machine and the versions that the figures depend on."""
    names = ("jax", "jaxlib", "flax", "torch", "numpy")
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "device": models[0] if models else platform.processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 224])
    parser.add_argument("--modes", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=8, help="three times as many up to 64 pixels")
    parser.add_argument("--threads", type=int, default=cores(), help="PyTorch's")
    parser.add_argument(
        "--quick", action="store_true", help="only the settings of PyTorch that are usually fastest"
    )
    parser.add_argument("--find", action="store_true", help="run the find step first")
    parser.add_argument("--database", type=Path, help="folder for the results of the find steps")
    parser.add_argument("--output", type=Path, help="default: depends on --find")
    options = parser.parse_args()
    if options.output is None:
        name = "training_step_cpu_find.json" if options.find else "training_step_cpu.json"
        options.output = HERE / "results" / name
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAXATR_CACHE"] = str(options.database or cache)
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Measures and records every case."""
    load = os.getloadavg()[0]
    record = {**machine(), "load_at_start": load, "batch": options.batch, "find": options.find}
    record["cases"] = []
    for size in options.sizes:
        for mode in options.modes:
            case = compare(mode, size, options)
            record["cases"].append(case)
            *head, line = lines(record["cases"])
            print("\n".join([line] if len(record["cases"]) > 1 else [*head, line]), flush=True)
            save(options.output, record)
    options.output.with_suffix(".md").write_text(page(record))


def save(path: Path, record: dict) -> None:
    """Saves the cases measured so far, so that an interrupted run loses none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n")


HEADER = (
    "mode", "pixels", "images/s", "PyTorch by default", "ratio", "memory",
    "fastest PyTorch", "ratio", "to the heuristic",
)  # fmt: skip


def lines(cases: list[dict]) -> list[str]:
    """Returns the lines of a Markdown table, the last column only after a find step."""
    return table(HEADER if "heuristic" in cases[0] else HEADER[:-1], *map(cells, cases))


def cells(case: dict) -> list[str]:
    """Returns a case's row of the table."""
    row = [case["mode"], case["size"], case["contenders"]["jaxatr"]["images_per_s"]]
    for key in ("as_started", "fastest"):
        compared = case[key]
        theirs = case["contenders"][compared["theirs"]]
        setting = compared["theirs"].removeprefix("torch ")
        row += [f"{theirs['images_per_s']} ({setting})", compared["speed"]]
        row += [compared["memory"]] if key == "as_started" else []
    row += [case["heuristic"]["speed"]] if "heuristic" in case else []
    return list(map(str, row))


def page(record: dict) -> str:
    """Returns the record as a page of Markdown."""
    rows = "\n".join(lines(record["cases"]))
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"Made by `training_step.py`. {record['device']}, {record['cores']} cores; batch "
        f"{record['batch']}; {versions}; load at the start {record['load_at_start']:.1f}; "
        f"kernels {'found by measuring' if record['find'] else 'by the heuristic'}. Inference is "
        "compiled as with `runtime=onednn`, which uses oneDNN where this jaxlib has it and it is "
        "faster.\n\n"
        f"{rows}\n"
    )


if __name__ == "__main__":
    main()
