"""Times every algorithm of jaxatr.kernels.convolution on the layers of ResNet-18, by direction.

The heuristic in jaxatr/kernels/ops/convolution/heuristic.py is based on these timings: the best of
many runs in milliseconds, with each algorithm as a separate program.

Run: python experiments/benchmarks/convolution.py [--sizes 32 64 128 224] [--batch 32]
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxatr.kernels.device import of_platform
from jaxatr.kernels.ops.convolution.dead_taps import without_dead_taps
from jaxatr.kernels.ops.convolution.heuristic import choose
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.solvers import SOLVERS

HERE = Path(__file__).parent
SLOW = 0.1  # seconds; slower programs are run less often


def layers(size: int, batch: int) -> list[tuple[str, tuple, tuple, int, int]]:
    """Returns name, image, kernel, stride and padding of the distinct layers of ResNet-18."""
    side, channels = size // 4, 64
    listed = [
        ("stem", (batch, size, size, 3), (7, 7, 3, 64), 2, 3),
        ("stage1", (batch, side, side, 64), (3, 3, 64, 64), 1, 1),
    ]
    for stage in (2, 3, 4):
        image, wider = (batch, side, side, channels), 2 * channels
        listed.append((f"stage{stage} first", image, (3, 3, channels, wider), 2, 1))
        listed.append((f"stage{stage} shortcut", image, (1, 1, channels, wider), 2, 0))
        side, channels = -(-side // 2), wider
        image = (batch, side, side, channels)
        listed.append((f"stage{stage}", image, (3, 3, channels, channels), 1, 1))
    return listed


def milliseconds(problem: ConvProblem, name: str, repeats: int) -> float:
    """Returns the best time of an algorithm, run through the primitive."""
    draw = np.random.default_rng(0)
    a, b = (jnp.asarray(draw.standard_normal(s, np.float32)) for s in problem.argument_shapes)
    run = jax.jit(lambda a, b: bind(a, b, problem, name))
    jax.block_until_ready(run(a, b))
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < repeats * SLOW:
        start = time.perf_counter()
        jax.block_until_ready(run(a, b))
        seconds.append(time.perf_counter() - start)
    return round(1e3 * min(seconds), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 224])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "convolution_cpu.json")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        for layer, x, w, stride, pad in layers(size, options.batch):
            for direction in ("forward", "data", "weight"):
                edges = ((pad, pad), (pad, pad))
                problem = without_dead_taps(
                    ConvProblem(direction, x, w, (stride, stride), edges, (1, 1), 1, "float32")
                )
                times = {
                    name: milliseconds(problem, name, options.repeats)
                    for name, solver in SOLVERS.items()
                    if solver.applies(problem, of_platform(jax.default_backend()))
                }
                chosen = choose(problem)
                rows.append(
                    {"size": size, "layer": layer, "direction": direction, "chosen": chosen}
                    | {"milliseconds": times}
                )
                print(size, layer, direction, times, "chosen:", chosen, flush=True)
    record = {"jax": jax.__version__, "cores": os.cpu_count(), "batch": options.batch}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
