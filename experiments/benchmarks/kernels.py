"""jaxatr's automatic choice against each single form and against PyTorch, layer by layer.

For each convolution of DeepBench's training list (those under 8 GB) and of ResNet-18 and -50, in
each direction: a find step first, then what it chose ("auto"), every form in its default
configuration, and PyTorch in a process of its own take turns; medians are compared. Ratios above
1 say that auto is faster. Layers on which XLA's form takes more than ten times as long as auto are
its cliffs, and counted apart where auto is compared with XLA.

Run: python experiments/benchmarks/kernels.py [--lists deepbench resnet] [--sizes 32 64 128 224]
     [--batches 8 32] [--limit LAYERS] [--rounds 9] [--budget SECONDS]
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from kernel_problems import deepbench, resnet

from jaxatr import kernels
from jaxatr.kernels import choosing
from jaxatr.kernels.device import describe
from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import Direction, Problem

HERE = Path(__file__).parent
LIMIT = 8e9  # bytes of arguments and result
CLIFF = 10.0
PAUSE = 0.03  # seconds: PyTorch's threads go on spinning after their work, and would be in the way


class Torch:
    """PyTorch, waiting for its turn."""

    def __init__(self):
        """Starts the process."""
        self._process = subprocess.Popen(
            [sys.executable, HERE / "kernels_torch.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def take(self, problem: Problem) -> None:
        """Gives it the problem that is timed from now on."""
        self._ask(json.dumps(dataclasses.asdict(problem)))

    def seconds(self) -> float:
        """Returns the time of one run."""
        return float(self._ask(""))

    def _ask(self, line: str) -> str:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        print(line, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"kernels_torch.py has ended, asked for {line or 'a run'}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def problems(options: argparse.Namespace) -> Iterator[tuple[str, Problem]]:
    """Yields the layers asked for, forward."""
    if "deepbench" in options.lists:
        yield from (("deepbench " + name, problem) for name, problem in deepbench(options.dtype))
    if "resnet" in options.lists:
        for size in options.sizes:
            for batch in options.batches:
                for name, problem in resnet(size, batch, options.dtype):
                    yield f"{name} {size}px", problem


def size(problem: Problem) -> int:
    shapes = (problem.x_shape, problem.w_shape, problem.y_shape)
    return sum(problem.bytes(shape) for shape in shapes)


def timed(run: Callable[[], object]) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - start

    return once


def contenders(problem: Problem, budget: float, torch: Torch) -> dict[str, Callable[[], float]]:
    """Returns what takes one run of each, and gives its seconds."""
    draw = np.random.default_rng(0)
    arguments = [
        jnp.asarray(draw.standard_normal(shape, np.float32), problem.dtype)
        for shape in problem.argument_shapes
    ]
    found = kernels.find(problem, budget_seconds=budget)
    names = dict.fromkeys(performance.algorithm for performance in found)
    runs = {}
    for name in ("auto", *names):
        compiled = jax.jit(lambda a, b, name=name: bind(a, b, problem, name))
        jax.block_until_ready(compiled(*arguments))
        runs[name] = timed(lambda compiled=compiled: compiled(*arguments))
    torch.take(problem)
    return runs | {"torch": torch.seconds}


def measure(problem: Problem, options: argparse.Namespace, torch: Torch) -> dict[str, float]:
    """Returns the median milliseconds of each contender, which take turns."""
    runs = contenders(problem, options.budget, torch)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(options.rounds):
        names = list(runs) if turn % 2 else list(reversed(runs))
        for name in names:
            time.sleep(PAUSE)
            runs[name]()  # brings its own arguments into the cache
            seconds[name].append(runs[name]())
    return {name: round(1e3 * statistics.median(times), 4) for name, times in seconds.items()}


def chosen(problem: Problem, device) -> str:
    here = describe(device)
    canonical = OPERATION.canonical(problem, here)
    choice = choosing.current().choose(OPERATION, canonical, here)
    return " ".join([choice.algorithm, *(f"{name}={value}" for name, value in choice.config)])


def mean(ratios: list[float]) -> str:
    """Returns the geometric mean and the least."""
    if not ratios:
        return "none"
    middle = math.exp(statistics.fmean(map(math.log, ratios)))
    return f"{middle:.3f}, least {min(ratios):.3f}, of {len(ratios)}"


def summary(rows: list[dict]) -> list[str]:
    """Returns the lines above the table."""

    def ratios(name: str, part: list[dict]) -> list[float]:
        return [row["milliseconds"][name] / row["milliseconds"]["auto"] for row in part]

    forms = [
        min(v for name, v in row["milliseconds"].items() if name not in ("auto", "torch"))
        / row["milliseconds"]["auto"]
        for row in rows
    ]
    of_resnet = [row for row in rows if "resnet" in row["layer"] or "stem" in row["layer"]]
    with_xla = [row for row in rows if "xla" in row["milliseconds"]]
    cliffs = [
        row for row in with_xla if row["milliseconds"]["xla"] > CLIFF * row["milliseconds"]["auto"]
    ]
    others = [row for row in with_xla if row not in cliffs]
    return [
        f"- against the best single form: {mean(forms)}",
        f"- against PyTorch: {mean(ratios('torch', rows))}",
        f"- against PyTorch, ResNet's layers: {mean(ratios('torch', of_resnet))}",
        f"- against XLA's form: {mean(ratios('xla', others))}; its cliffs: "
        f"{mean(ratios('xla', cliffs))}",
        f"- losses to PyTorch: {sum(ratio < 1 for ratio in ratios('torch', rows))}",
    ]


def table(rows: list[dict]) -> list[str]:
    lines = ["| layer | problem | chosen | ms | best form | PyTorch |", "|---|---|---|---|---|---|"]
    for row in rows:
        times = row["milliseconds"]
        best = min(v for name, v in times.items() if name not in ("auto", "torch"))
        auto = times["auto"]
        lines.append(
            f"| {row['layer']} | {row['problem']} | {row['chosen']} | {auto:.3f} "
            f"| {best / auto:.2f} | {times['torch'] / auto:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", nargs="+", default=["deepbench", "resnet"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 224])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, help="of layers, the smallest first")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--output", type=Path, help="without suffix; default: results/kernels_cpu")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    output = options.output or HERE / "results" / f"kernels_{device.platform}"
    layers = [(name, one) for name, one in problems(options) if size(one) < LIMIT]
    if options.limit:
        layers = sorted(layers, key=lambda layer: size(layer[1]))[: options.limit]
    rows, torch = [], Torch()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["JAXATR_CACHE"] = cache  # found in this run, not by the way
        for name, forward in layers:
            directions: tuple[Direction, ...] = get_args(Direction)
            for direction in directions:
                problem = forward.turned(direction)
                milliseconds = measure(problem, options, torch)
                row = {"layer": name, "problem": problem.key.removeprefix("convolution ")}
                rows.append(row | {"chosen": chosen(problem, device), "milliseconds": milliseconds})
                print(rows[-1], flush=True)
    torch.close()
    about = {"device": describe(device).kind, "jax": jax.__version__, "rounds": options.rounds}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.with_suffix(".json").write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")
    title = f"Made by `kernels.py`. {about['device']}; jax {about['jax']}; {len(rows)} problems."
    text = "\n".join([title, "", *summary(rows), "", *table(rows)])
    output.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
