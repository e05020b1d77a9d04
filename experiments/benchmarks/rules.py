"""Compares rules for the forms of convolutions in whole training steps of ResNet-18.

Each rule runs in a process of its own, and the processes take turns. The record has the rate, the
size of the compiled program, the processor seconds of its compilation and its temporary memory.

Run: python experiments/benchmarks/rules.py [--sizes 128 224] [--rounds 8]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from recording import table
from step_jax import CLASSES, Benchmark
from training_step import machine

from jaxatr import parallel
from jaxatr.kernels.ops.convolution import heuristic
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.training.state import create_state
from jaxatr.training.step import make_step

OUTPUT = Path(__file__).parent / "results" / "rules_cpu"
LARGE = 16 * 16  # pixels of a result; the rules below change only larger ones
BATCH = 32


def xla(problem: ConvProblem, usual: str) -> str:
    """XLA's convolution instead of Winograd's in the forward and the data direction."""
    return usual if problem.direction == "weight" else "xla"


def xla_everywhere(problem: ConvProblem, usual: str) -> str:
    """No Winograd in any direction: a weight gradient is a transposed product."""
    return "turned" if problem.direction == "weight" else "xla"


def small_tiles(problem: ConvProblem, usual: str) -> str:
    """Tiles of 2×2 results instead of 4×4."""
    return "winograd"


RULES: dict[str, Callable[[ConvProblem, str], str] | None] = {
    "the heuristic": None,
    "XLA, forward and data": xla,
    "XLA, all directions": xla_everywhere,
    "tiles of 2×2": small_tiles,
}


def work(name: str, size: int) -> None:
    """Trains by a rule as many steps as each line of standard input asks for."""
    choose, rule = heuristic.choose, RULES[name]

    def chosen(problem: ConvProblem) -> str:
        usual = choose(problem)
        large = math.prod(problem.y_shape[1:3]) > LARGE and usual.startswith("winograd")
        return rule(problem, usual) if rule and large else usual

    heuristic.choose = chosen
    task: Any = Benchmark(size)
    state = parallel.replicate(create_state(task, jax.random.key(0)))
    draw = np.random.default_rng(0)
    images = draw.standard_normal((BATCH, size, size, 3), np.float32)
    batch = {"image": images, "label": draw.integers(0, CLASSES, BATCH, np.int32)}
    batch, stop = jax.device_put(parallel.shard(batch, 1)), np.zeros(1, np.int32)
    lowered = make_step(task.phases[0], None).lower(state, batch, stop)
    before = time.process_time()
    step = lowered.compile()
    seconds = time.process_time() - before
    instructions = re.findall(r"^\s+(?:ROOT )?%?[\w.\-]+ = ", step.as_text() or "", re.MULTILINE)
    facts = {
        "instructions": len(instructions),
        "compilation_cpu_s": round(seconds, 1),
        "temporary_mib": round(step.memory_analysis().temp_size_in_bytes / 2**20),
    }
    memory.give_back()
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            state, sums = step(state, batch, stop)
            jax.block_until_ready(sums)
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def compared(size: int, rounds: int) -> dict[str, dict[str, float]]:
    """Times the rules in turn; the first step of each turn and the first turn do not count."""
    workers, rows = {}, {}
    for name in RULES:
        workers[name] = subprocess.Popen(
            [sys.executable, __file__, f"--work={name}", f"--sizes={size}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        rows[name] = _answer(workers[name])
    seconds: dict[str, list[float]] = {name: [] for name in RULES}
    for turn in range(1 + rounds):
        for name in list(RULES)[:: 1 if turn % 2 else -1]:
            print(4, file=workers[name].stdin, flush=True)
            times = _answer(workers[name])
            seconds[name] += times[1:] if turn else []
    for name, worker in workers.items():
        worker.communicate()
        rows[name]["images_per_s"] = round(BATCH / statistics.median(seconds[name]), 2)
    return rows


def _answer(worker: subprocess.Popen) -> Any:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"a contender ended early: {worker.args}")
    return json.loads(line)


def page(record: dict[str, Any]) -> str:
    """Returns the record as a page of Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    header = (
        "pixels", f"results of more than {LARGE} pixels by", "images/s", "instructions",
        "compilation, processor s", "temporary MiB",
    )  # fmt: skip
    facts = ("images_per_s", "instructions", "compilation_cpu_s", "temporary_mib")
    rows = [
        [size, name, *(str(row[fact]) for fact in facts)]
        for size, found in record["sizes"].items()
        for name, row in found.items()
    ]
    about = f"{record['device']}, {record['cores']} cores; batch {BATCH}; {versions}."
    return "\n".join([f"Made by `rules.py`. {about}", "", *table(header, *rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 224])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="without suffix")
    parser.add_argument("--work", choices=RULES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        return work(options.work, options.sizes[0])
    record = machine() | {"sizes": {}}
    for size in options.sizes:
        record["sizes"][str(size)] = compared(size, options.rounds)
        options.output.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")
    options.output.with_suffix(".md").write_text(page(record))
    print(page(record))


if __name__ == "__main__":
    main()
