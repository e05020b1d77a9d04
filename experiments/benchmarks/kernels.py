"""Compares jaxatr's automatic choice with each single form and with PyTorch, layer by layer.

The layers are the convolutions of DeepBench's training list (those under 8 GB) and of ResNet-18 and
-50, in each direction. After a find step, its choice ("auto"), every form in its default
configuration, and PyTorch in a separate process are timed in turn, and medians are compared. Ratios
above 1 mean that auto is faster. Layers on which XLA's form takes more than ten times as long as
auto are called its cliffs and are listed separately in the comparison with XLA. Run again, an
interrupted run continues (contest.py).

Run: python experiments/benchmarks/kernels.py [--lists deepbench resnet] [--sizes 32 64 128 224]
     [--batches 8 32] [--dtype float32] [--limit LAYERS] [--rounds 15] [--seconds 6]
     [--budget SECONDS] [--database FOLDER] [--again RATIO]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from contest import Contest, add_options
from kernel_problems import deepbench, flops, resnet, size
from recording import (
    FAR,
    NEAR,
    Recording,
    confirmed,
    failures,
    geometric_mean,
    heading,
    losses,
    ratio,
    roofline,
    table,
)

from jaxatr.kernels.ops.convolution.operation import OPERATION
from jaxatr.kernels.ops.convolution.primitive import bind
from jaxatr.kernels.ops.convolution.problem import ConvProblem, Direction

LIMIT = 8e9  # the most bytes of arguments and result
CLIFF = 10.0
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def layers(options: argparse.Namespace) -> Iterator[tuple[str, ConvProblem]]:
    """Yields the forward problems of the selected layers."""
    if "deepbench" in options.lists:
        yield from (("deepbench " + name, problem) for name, problem in deepbench(options.dtype))
    if "resnet" in options.lists:
        for pixels in options.sizes:
            for batch in options.batches:
                for name, problem in resnet(pixels, batch, options.dtype):
                    yield f"{name} {pixels}px", problem


def problems(options: argparse.Namespace) -> Iterator[tuple[dict[str, str], ConvProblem]]:
    """Yields the fields that identify each row, and its problem."""
    chosen = [(name, one) for name, one in layers(options) if size(one) < LIMIT]
    if options.limit:
        chosen = sorted(chosen, key=lambda layer: size(layer[1]))[: options.limit]
    for name, forward in chosen:
        for problem in map(forward.in_direction, DIRECTIONS):
            yield {"layer": name, "problem": problem.key.removeprefix("convolution ")}, problem


def programs(problem: ConvProblem, algorithms: list[str]) -> dict[str, tuple[Callable, tuple]]:
    """Returns the functions that compute the problem, with their arguments, by name."""
    draw = np.random.default_rng(0)
    arguments = tuple(
        jnp.asarray(draw.standard_normal(shape, np.float32), problem.dtype)
        for shape in problem.argument_shapes
    )
    return {
        name: (partial(bind, problem=problem, algorithm=name), arguments)
        for name in ("auto", *algorithms)
    }


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the lines above the table."""

    def mean(name: str, part: list[dict[str, Any]]) -> str:
        return geometric_mean([ratio(row, name) for row in part])

    with_torch, with_xla = ([r for r in rows if n in r["milliseconds"]] for n in ("torch", "xla"))
    of_resnet = [row for row in with_torch if row["layer"].startswith(("resnet", "stem"))]
    cliffs = [row for row in with_xla if ratio(row, "xla") > CLIFF]
    others = [row for row in with_xla if row not in cliffs]
    return [
        f"- against the best single form: {mean('best', rows)}",
        f"- against PyTorch: {mean('torch', with_torch)}",
        f"- against PyTorch, ResNet's layers: {mean('torch', of_resnet)}",
        f"- against XLA's form: {mean('xla', others)}; its cliffs: {mean('xla', cliffs)}",
        confirmed(rows, FAR),
        *losses("best", rows, NEAR),
        *losses("torch", with_torch),
    ]


def group(row: dict[str, Any]) -> str:
    """Returns the group of a row: its list and, for ResNet's layers, pixels and batch."""
    layer, batch = row["layer"].split(), row["problem"].split()[1].partition("x")[0]
    return " ".join(layer) if layer[0] == "deepbench" else f"ResNet {layer[-1]}, batch {batch}"


def groups(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yields table rows: the geometric mean and the least ratio to the best form and PyTorch."""
    yield ["list", *(f"{one}, {to}" for one in DIRECTIONS for to in ("best form", "PyTorch"))]
    for name in dict.fromkeys(map(group, rows)):
        cells = []
        for direction in DIRECTIONS:
            part = [r for r in rows if group(r) == name and r["problem"].startswith(direction)]
            for peer in ("best", "torch"):
                ratios = [ratio(r, peer) for r in part if peer in ("best", *r["milliseconds"])]
                cells.append(geometric_mean(ratios).partition(", of")[0])
        yield [name, *cells]


HEADER = ("layer", "problem", "chosen", "ms", "best form", "PyTorch", "TFLOP/s", "TB/s", "roof")


def cells(row: dict[str, Any]) -> list[str]:
    times = row["milliseconds"]
    peer = f"{ratio(row, 'torch'):.2f}" if "torch" in times else "failed"
    ratios = [f"{times['auto']:.3f}", f"{ratio(row, 'best'):.2f}", peer]
    return [row["layer"], row["problem"], row["chosen"], *ratios, *roofline(row["auto"])]


def page(recording: Recording) -> list[str]:
    """Returns the lines of the record as Markdown."""
    rows = [row for row in recording.rows if row["milliseconds"]]
    return [
        heading("kernels.py", recording),
        "",
        *summary(rows),
        *failures(recording.rows),
        "",
        *table(*groups(rows)),
        "",
        *table(HEADER, *map(cells, rows)),
    ]


def parser() -> argparse.ArgumentParser:
    """Builds the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", nargs="+", default=["deepbench", "resnet"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128, 224])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--limit", type=int, help="number of layers, the smallest first")
    add_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    contest = Contest(OPERATION, programs, lambda problem: (flops(problem), size(problem)))
    recording = contest.hold("kernels", problems(options), options)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
