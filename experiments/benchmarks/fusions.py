"""Compares fused plans with the same operations run separately.

The layers are those of MIOpen's chart of fusions: convolution, bias and activation (CBA), the same
with batch norm (CBNA), both with a residual input before the activation (CBRA, CBNRA), and batch
norm with activation (NA). "Separate" runs each operation as a program of its own. All are timed in
turn in one process, and medians are compared. Each result is first compared with NumPy's float64;
wrong results are recorded as failed and not timed. Run again, an interrupted run continues.

Run: python experiments/benchmarks/fusions.py [--batch 64] [--dtype float32] [--limit LAYERS]
     [--plans CBA CBNA CBRA CBNRA NA]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from alternating import in_turn, timed
from ceilings import kept, reached
from recording import Recording, failures, geometric_mean, heading, roofline, table

from jaxatr.kernels.benchmark import relative_error
from jaxatr.kernels.contrib.fusion import (
    Activation,
    BatchNorm,
    Bias,
    Convolution,
    FusionPlan,
    FusionProblem,
    Residual,
)
from jaxatr.kernels.contrib.fusion.operations import Operation
from jaxatr.kernels.contrib.fusion.solvers import SOLVERS
from jaxatr.kernels.device import describe
from jaxatr.kernels.ops.convolution.problem import ConvProblem
from jaxatr.kernels.ops.convolution.reference import reference
from jaxatr.kernels.ops.tolerance import PLAIN, of_products

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


# The operations after the convolution, by the combination of the whole plan.
TAILS: dict[str, list[Operation]] = {
    "CBA": [Bias(), Activation()],
    "CBNA": [Bias(), BatchNorm(), Activation()],
    "CBRA": [Bias(), Residual(), Activation()],
    "CBNRA": [Bias(), BatchNorm(), Residual(), Activation()],
}
PLANS = (*TAILS, "NA")


def layers(options: argparse.Namespace) -> Iterator[tuple[str, FusionPlan, FusionProblem]]:
    """Yields a label, a plan and its problem for each line of the chart and each selected plan."""
    for c, side, k, taps, pad in CONVOLUTIONS:
        convolution = Convolution(padding=((pad, pad), (pad, pad)))
        sizes = (options.batch, side, side, c), (taps, taps, c, k)
        label = f"{c}-{side}-{side}-{k}-{taps}-{taps}-{pad}-{pad}"
        for combination, tail in TAILS.items():
            if combination in options.plans:
                plan = FusionPlan([convolution, *tail])
                yield label, plan, FusionProblem(*sizes, options.dtype)
    for c, side in NORMS if "NA" in options.plans else ():
        problem = FusionProblem((options.batch, side, side, c), None, options.dtype)
        yield f"{c}-{side}-{side}", FusionPlan([BatchNorm(), Activation()]), problem


def drawn(plan: FusionPlan, problem: FusionProblem) -> dict[str, jax.Array]:
    """Returns random arguments; variances are positive."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in plan.arguments(problem).items():
        dtype = problem.dtype if name in ("x", "w", "residual") else "float32"
        values = rng.standard_normal(shape, np.float32)
        arrays[name] = jnp.asarray(abs(values) + 0.5 if name == "variance" else values, dtype)
    return arrays


def convolved(problem: FusionProblem, plan: FusionPlan) -> ConvProblem | None:
    """Returns the problem of a plan's convolution, or None if it has none."""
    first = plan.operations[0]
    if not isinstance(first, Convolution) or problem.w_shape is None:
        return None
    shapes = problem.x_shape, problem.w_shape
    return ConvProblem("forward", *shapes, first.stride, first.padding, (1, 1), 1, problem.dtype)


def exact(plan: FusionPlan, problem: FusionProblem, arguments: dict[str, jax.Array]) -> np.ndarray:
    """Computes the result in NumPy's float64; norms are spatial and activations are ReLU."""
    wide = {name: np.asarray(array).astype(np.float64) for name, array in arguments.items()}
    convolution, y = convolved(problem, plan), wide["x"]
    for letter in plan.combination:
        if letter == "C" and convolution is not None:
            y = reference(convolution, (y, wide["w"]))
        elif letter in "BR":
            y = y + wide["bias" if letter == "B" else "residual"]
        elif letter == "N":
            normal = (y - wide["mean"]) / np.sqrt(wide["variance"] + BatchNorm().epsilon)
            y = normal * wide["scale"] + wide["shift"]
        elif letter == "A":
            y = np.maximum(y, 0)
    return y


def work(plan: FusionPlan, problem: FusionProblem, moved: float) -> tuple[float, float]:
    """Returns the convolution's flops, and the bytes of arguments and result."""
    convolution, size = convolved(problem, plan), jnp.dtype(problem.dtype).itemsize
    if convolution is None:
        return 0, moved + math.prod(problem.x_shape) * size
    y = convolution.y_shape
    taps = math.prod(convolution.w_shape[:3])
    return 2 * math.prod(y) * taps, moved + math.prod(y) * size


def separate(plan: FusionPlan, arguments: dict[str, jax.Array]) -> Callable[[], jax.Array]:
    """Returns a function that runs each operation as a separate program."""
    programs = [jax.jit(operation.apply) for operation in plan.operations]

    def run() -> jax.Array:
        y = arguments["x"]
        for program in programs:
            y = program(y, arguments).astype(arguments["x"].dtype)
        return y

    return run


def programs(plan: FusionPlan, problem: FusionProblem, arguments: dict) -> dict[str, Callable]:
    """Returns the separate operations and the plan of each solver that accepts the sequence."""
    runs: dict[str, Callable[[], Any]] = {"separate": separate(plan, arguments)}
    for name in SOLVERS:
        try:
            compiled = plan.compile(problem, solver=name)
        except NotImplementedError:
            continue  # it does not accept the sequence or does not run on this device
        runs[name] = lambda compiled=compiled: compiled.execute(arguments)
    return runs


def measure(plan: FusionPlan, problem: FusionProblem, rounds: int) -> dict[str, Any]:
    """Returns the error and the median milliseconds of each contender, and the failures."""
    arguments, clocks, errors, failed = drawn(plan, problem), {}, {}, {}
    allowed = of_products(problem.dtype, describe(jax.local_devices()[0]), PLAIN)
    wanted = exact(plan, problem, arguments)
    for name, run in programs(plan, problem, arguments).items():
        errors[name] = relative_error(jax.block_until_ready(run()), wanted)
        if errors[name] <= allowed:
            clocks[name] = timed(run)
        else:
            failed[name] = f"wrong by {errors[name]:.2e}, allowed {allowed:.2e}"
    seconds = in_turn(clocks, rounds)
    return {
        "milliseconds": {name: round(1e3 * value, 4) for name, value in seconds.items()},
        "errors": {name: float(f"{error:.3g}") for name, error in errors.items()},
        "work": work(plan, problem, sum(array.nbytes for array in arguments.values())),
        "failed": failed,
    }


def row_of(plan: FusionPlan, problem: FusionProblem, options: argparse.Namespace, ceilings) -> dict:
    """Measures a plan for the record; an exception is recorded and does not end the run."""
    try:
        row = measure(plan, problem, options.rounds)
    except Exception as error:  # compilers, kernels and full memory can raise anything
        return {"milliseconds": {}, "failed": {"plan": f"{type(error).__name__}: {error}"}}
    flops, moved = row.pop("work")
    times = row["milliseconds"].items()
    rates = {name: reached(flops, moved, ms, ceilings) for name, ms in times}
    return row | {"rates": rates}


HEADER = ("plan", "layer", "solver", "ms", "separate", "error", "TFLOP/s", "TB/s", "roof")


def page(recording: Recording) -> list[str]:
    """Returns the lines of the record as Markdown; a single solver has no ratio."""
    ratios: dict[tuple[str, str], list[float]] = {}
    lines = []
    for row in recording.rows:
        for name, ms in row["milliseconds"].items():
            if name == "separate" or "separate" not in row["milliseconds"]:
                continue
            ratio = row["milliseconds"]["separate"] / ms
            ratios.setdefault((row["plan"], name), []).append(ratio)
            cells = [row["plan"], row["layer"], name, f"{ms:.3f}", f"{ratio:.2f}"]
            lines.append([*cells, f"{row['errors'][name]:.1e}", *roofline(row["rates"][name])])
    means = [
        f"- {plan} by {name}, against separate: {geometric_mean(part)}"
        for (plan, name), part in ratios.items()
    ]
    return [
        f"{heading('fusions.py', recording)} Batch {recording.about['batch']}.",
        "",
        *means,
        *failures(recording.rows),
        "",
        *table(HEADER, *lines),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--plans", nargs="+", choices=PLANS, default=PLANS)
    parser.add_argument("--limit", type=int, help="number of plans, the smallest images first")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="without suffix; default: by device and dtype")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    about = {"device": describe(device).kind, "jax": jax.__version__, "dtype": options.dtype}
    about |= {"rounds": options.rounds, "batch": options.batch}
    name = f"fusions_{device.platform}_{options.dtype}"
    recording = Recording(options.output or HERE / "results" / name, about)
    ceilings = kept(recording.about, options.dtype)
    chosen = list(layers(options))
    if options.limit:
        chosen = sorted(chosen, key=lambda layer: np.prod(layer[2].x_shape))[: options.limit]
    for label, plan, problem in chosen:
        key = {"plan": plan.combination, "layer": label, "problem": f"{plan.combination} {label}"}
        if not recording.has(key):
            recording.add(key, row_of(plan, problem, options, ceilings))
            print(recording.rows[-1], flush=True)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
