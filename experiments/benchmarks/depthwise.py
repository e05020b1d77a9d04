"""Compares depthwise convolutions by the heuristic, by its former choice, by XLA and by PyTorch.

The layers are those of MobileNetV2 at 96 pixels and some of EfficientNet-Lite0, in each direction.
"heuristic" is its present choice, and "before" the form that it chose until ``direct`` summed
weight gradients in blocks. All are timed in turn, PyTorch (channels_last, all cores) in a separate
process, and medians are compared. Ratios above 1 mean that the heuristic's form is faster. An
interrupted run continues when it is started again.

Run: python experiments/benchmarks/depthwise.py [--batch 32] [--rounds 15] [--seconds 6]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from alternating import in_turn, timed
from clock import several
from contest import compiled
from recording import Recording, geometric_mean, table
from torch_peer import Torch

from jaxatr.kernels import choosing
from jaxatr.kernels.device import describe
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Direction
from jaxatr.kernels.ops.convolution.solvers import winograd

RESULTS = Path(__file__).parent / "results"
LAYERS = (  # pixels, channels, kernel, stride
    (48, 32, 3, 1),
    (48, 96, 3, 2),
    (24, 144, 3, 1),
    (24, 144, 3, 2),
    (12, 192, 3, 1),
    (12, 192, 3, 2),
    (6, 384, 3, 1),
    (6, 576, 3, 2),
    (3, 960, 3, 1),
    (24, 144, 5, 2),
    (6, 480, 5, 1),
)
HOPELESS = 20.0  # multiple of the fastest time; slower forms are not timed in every round


def problems(batch: int) -> Iterator[ConvProblem]:
    """Yields each layer in each direction."""
    for pixels, channels, kernel, stride in LAYERS:
        edge = kernel // 2, kernel // 2
        shapes = (batch, pixels, pixels, channels), (kernel, kernel, 1, channels)
        forward = ConvProblem(
            "forward", *shapes, (stride, stride), (edge, edge), (1, 1), channels, "float32"
        )
        directions: tuple[Direction, ...] = get_args(Direction)
        yield from map(forward.in_direction, directions)


def before(problem: ConvProblem) -> str:
    """Returns the heuristic's former choice for a depthwise problem."""
    if problem.direction == "weight":
        return "matmul"
    return "winograd" if winograd.applies(problem) else "xla"


def measured(problem: ConvProblem, options: argparse.Namespace, torch: Torch) -> dict[str, Any]:
    """Returns the median milliseconds of each contender."""
    draw = np.random.default_rng(0)
    arguments = tuple(
        jnp.asarray(draw.standard_normal(shape, np.float32)) for shape in problem.argument_shapes
    )
    forms = {"heuristic": choosing.Choices({}), "before": before(problem), "xla": "xla"}
    programs = {
        name: (partial(bind, problem=problem, algorithm=form), arguments)
        for name, form in forms.items()
    }
    runs = compiled(programs)
    clocks = {name: several(timed(run)) for name, run in runs.items()}
    torch.take("convolution", problem)
    seconds = in_turn(
        {**clocks, "torch": torch.seconds},
        options.rounds,
        hopeless=HOPELESS,
        budget=options.seconds,
        stay=("heuristic", "torch"),
    )
    return {"milliseconds": {name: round(1e3 * value, 4) for name, value in seconds.items()}}


def page(recording: Recording) -> list[str]:
    """Returns the lines of the record as Markdown."""
    about, rows = recording.about, recording.rows
    lines = [
        f"Made by `depthwise.py`. {about['device']}; float32; batch {about['batch']}; jax "
        f"{about['jax']}, torch {about['torch']}. Milliseconds; ratios are how many times as fast "
        "the heuristic's form is. This package and PyTorch keep freed memory (jaxatr.memory).",
        "",
    ]
    for direction in get_args(Direction):
        some = [row for row in rows if row["problem"].startswith(direction)]
        means = [
            f"{name} {geometric_mean([ratio(row, name) for row in some])}"
            for name in ("before", "xla", "torch")
        ]
        lines.append(f"- {direction}: {'; '.join(means)}")
    header = ("problem", "heuristic", "before", "xla", "torch", "to before", "to xla", "to torch")
    return [*lines, "", *table(header, *map(cells, rows))]


def ratio(row: dict[str, Any], name: str) -> float:
    """Returns the speed-up of the heuristic's form over another."""
    return row["milliseconds"][name] / row["milliseconds"]["heuristic"]


def cells(row: dict[str, Any]) -> list[str]:
    """Returns a row of the table."""
    times = [f"{row['milliseconds'][name]:.2f}" for name in ("heuristic", "before", "xla", "torch")]
    ratios = [f"{ratio(row, name):.2f}" for name in ("before", "xla", "torch")]
    return [row["problem"], *times, *ratios]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="time for the rounds; three are always run"
    )
    parser.add_argument("--output", type=Path, help="without suffix; default: by device")
    options = parser.parse_args()
    device = jax.local_devices()[0]
    about = {"device": describe(device).kind, "jax": jax.__version__, "torch": version("torch")}
    about |= {"batch": options.batch, "rounds": options.rounds, "seconds": options.seconds}
    output = options.output or RESULTS / f"depthwise_{device.platform}"
    recording, torch = Recording(output, about), Torch()
    for problem in problems(options.batch):
        key = {"problem": problem.key.removeprefix("convolution ")}
        if not recording.has(key):
            row = measured(problem, options, torch)
            recording.add(key, row)
            print(key | row, flush=True)
    torch.close()
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
