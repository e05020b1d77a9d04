"""Fused plans against the same operations one after the other.

The layers are those of MIOpen's own chart of fusions: convolution, bias and activation (CBA), the
same with batch norm (CBNA), and batch norm with activation (NA). "Separate" runs each operation as
a program of its own; both take turns in one process, and medians are compared.

Run: python experiments/benchmarks/fusions.py [--batch 64] [--dtype float32] [--limit LAYERS]
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from alternating import alternately  # noqa: E402

from jaxatr.kernels.device import describe  # noqa: E402
from jaxatr.kernels.fusion import (  # noqa: E402
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionPlan,
    FusionProblem,
)
from jaxatr.kernels.fusion.solvers import SOLVERS  # noqa: E402

HERE = Path(__file__).parent
# Channels, rows and columns, features, kernel, padding.
CONVOLUTIONS = [
    (64, 55, 64, 1, 0),
    (64, 55, 256, 1, 0),
    (128, 28, 512, 1, 0),
    (256, 55, 64, 1, 0),
    (64, 55, 64, 3, 1),
    (256, 14, 1024, 1, 0),
    (128, 28, 128, 3, 1),
    (512, 28, 128, 1, 0),
    (1024, 14, 256, 1, 0),
    (512, 7, 2048, 1, 0),
    (256, 14, 256, 3, 1),
    (512, 7, 512, 3, 1),
    (2048, 7, 512, 1, 0),
]
# Channels, rows and columns.
NORMS = [(512, 28), (128, 28), (64, 55), (256, 55), (1024, 14), (2048, 7), (512, 7), (256, 14)]


def layers(batch: int, dtype: str) -> list[tuple[str, FusionPlan, FusionProblem]]:
    """Returns a label, a plan and its problem for each line of the chart."""
    found = []
    for c, side, k, taps, pad in CONVOLUTIONS:
        convolution = Convolution(padding=((pad, pad), (pad, pad)))
        problem = FusionProblem((batch, side, side, c), (taps, taps, c, k), dtype)
        label = f"{c}-{side}-{side}-{k}-{taps}-{taps}-{pad}-{pad}"
        for rest in ([Bias(), Activation()], [Bias(), BatchNorm(), Activation()]):
            found.append((label, FusionPlan([convolution, *rest]), problem))
    for c, side in NORMS:
        problem = FusionProblem((batch, side, side, c), None, dtype)
        found.append((f"{c}-{side}-{side}", FusionPlan([BatchNorm(), Activation()]), problem))
    return found


def drawn(plan: FusionPlan, problem: FusionProblem) -> dict[str, jax.Array]:
    """Returns random arguments; a variance is positive."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in plan.arguments(problem).items():
        dtype = problem.dtype if name in ("x", "w") else "float32"
        values = rng.standard_normal(shape, np.float32)
        arrays[name] = jnp.asarray(abs(values) + 0.5 if name == "variance" else values, dtype)
    return arrays


def separate(plan: FusionPlan, arguments: dict[str, jax.Array]) -> Callable[[], jax.Array]:
    """Returns what runs each operation as its own program."""
    programs = [jax.jit(operation.apply) for operation in plan.operations]

    def run() -> jax.Array:
        y = arguments["x"]
        for program in programs:
            y = program(y, arguments).astype(arguments["x"].dtype)
        return y

    return run


def measured(plan: FusionPlan, problem: FusionProblem, rounds: int) -> dict[str, float]:
    """Returns the median milliseconds of the separate operations and of each solver's plan."""
    arguments = drawn(plan, problem)
    runs: dict[str, Callable[[], object]] = {"separate": separate(plan, arguments)}
    for name in SOLVERS:
        try:
            compiled = plan.compile(problem, solver=name)
        except NotImplementedError:
            continue  # it does not take the sequence, or is for another device
        runs[name] = lambda compiled=compiled: compiled.execute(arguments)
    seconds = alternately(runs, rounds)
    return {name: round(1e3 * value, 4) for name, value in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int, help="of lines, the smallest images first")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="default: results/fusions_cpu.json")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    output = options.output or HERE / "results" / f"fusions_{device.platform}.json"
    found = layers(options.batch, options.dtype)
    if options.limit:
        found = sorted(found, key=lambda layer: np.prod(layer[2].x_shape))[: options.limit]
    rows = []
    for label, plan, problem in found:
        milliseconds = measured(plan, problem, options.rounds)
        rows.append({"layer": label, "plan": plan.letters, "milliseconds": milliseconds})
        print(rows[-1], flush=True)
    about = {"device": describe(device).kind, "jax": jax.__version__, "batch": options.batch}
    output.parent.mkdir(parents=True, exist_ok=True)
    record = about | {"dtype": options.dtype, "rounds": options.rounds, "rows": rows}
    output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
