"""Times recurrent layers, forward and backward, against flax and PyTorch, on DeepBench's sizes.

After a find step for the forward and the backward problem, its choice ("auto"), every algorithm in
its default configuration, flax's ``RNN(OptimizedLSTMCell)`` or ``RNN(GRUCell)``, and PyTorch's
module in a separate process are timed in turn, and medians are compared. Ratios above 1 mean that
auto is faster. DeepBench's vanilla networks are left out. Run again, an interrupted run continues
(contest.py).

Run: python experiments/benchmarks/recurrent.py [--cells lstm gru] [--hidden 256 512] [--batch 16]
     [--dtype float32] [--rounds 15] [--seconds 6] [--budget SECONDS]
"""

from jaxatr import memory

if __name__ == "__main__":  # like the commands, before the imports below start threads
    memory.keep()

import argparse
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from contest import Contest, add_options
from flax import linen as nn
from recording import (
    NEAR,
    Recording,
    failures,
    geometric_mean,
    heading,
    losses,
    ratio,
    roofline,
    table,
)

from jaxatr.kernels import gru, lstm, recurrent
from jaxatr.kernels.ops.recurrent.operation import OPERATION
from jaxatr.kernels.ops.recurrent.problem import RecurrentProblem

# Hidden units (and inputs), batches and steps of DeepBench's training problems.
SIZES = {
    "lstm": [
        (256, (16, 32, 64), 150),
        (512, (16, 32, 64, 128), 25),
        (1024, (16, 32, 64, 128), 25),
        (1536, (8, 16, 32), 50),
        (2048, (16, 32, 64, 128), 25),
    ],
    "gru": [(1536, (32,), 187), (2048, (32,), 187)],
}
PUBLIC: dict[str, Callable] = {"lstm": lstm, "gru": gru}
CELLS: dict[str, Any] = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}


def layers(options: argparse.Namespace) -> Iterator[RecurrentProblem]:
    """Yields the forward problems of the selected layers."""
    for cell in options.cells:
        for hidden, batches, steps in SIZES[cell]:
            if options.hidden and hidden not in options.hidden:
                continue
            for batch in batches:
                if options.batch and batch not in options.batch:
                    continue
                sizes = options.steps or steps, batch, hidden, hidden
                yield RecurrentProblem(cell, *sizes, False, False, options.dtype)


def problems(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], RecurrentProblem]]:
    """Yields the fields that identify each row, and its problem, forward and backward."""
    for forward in layers(options):
        for problem in (forward, dataclasses.replace(forward, direction="backward")):
            key = problem.key.removeprefix("recurrent ")
            group = f"{problem.cell} {problem.hidden} {problem.direction}"
            yield {"group": group, "problem": key}, problem


def flops(problem: RecurrentProblem) -> int:
    """Returns the operations of the matrix products; a gradient has two more for each."""
    columns = problem.gates * problem.hidden
    one = 2 * problem.steps * problem.batch * columns * (problem.inputs + problem.hidden)
    return one * (1 if problem.direction == "forward" else 3)


def size(problem: RecurrentProblem) -> int:
    """Returns the bytes of arguments and results; backward has the gradients of the arguments."""
    rows = problem.inputs + problem.hidden
    weights = problem.gates * problem.hidden * (rows + 1)
    inputs, outputs = (problem.steps * problem.batch * n for n in (problem.inputs, problem.hidden))
    backward = 0 if problem.direction == "forward" else inputs + weights
    return (inputs + weights + outputs + backward) * jnp.dtype(problem.dtype).itemsize


def timed_part(problem: RecurrentProblem, layer: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the timed function of weights and inputs: the summed outputs or their gradients."""
    loss = lambda *arguments: jnp.sum(layer(*arguments))  # noqa: E731
    return loss if problem.direction == "forward" else jax.grad(loss, (0, 1))


def programs(problem: RecurrentProblem, algorithms: list[str]) -> dict[str, tuple[Callable, tuple]]:
    """Returns the functions that compute the problem, with their arguments, by name."""
    params = recurrent.init(
        jax.random.key(0), problem.cell, problem.inputs, problem.hidden, dtype=problem.dtype
    )
    shape = problem.batch, problem.steps, problem.inputs
    x = jax.random.normal(jax.random.key(1), shape, problem.dtype)
    run, arguments = PUBLIC[problem.cell], (params, x)
    functions = {}
    for name in ("auto", *algorithms):
        layer = lambda p, x, name=name: run(p, x, algorithm=name)[0]  # noqa: E731
        functions[name] = timed_part(problem, layer), arguments
    cell = CELLS[problem.cell](problem.hidden, dtype=problem.dtype, param_dtype=problem.dtype)
    module: Any = nn.RNN(cell)
    (name,) = jax.eval_shape(module.init, jax.random.key(0), x)["params"]
    variables = {"params": {name: recurrent.to_flax(problem.cell, params[0][0])}}
    return functions | {"flax": (timed_part(problem, module.apply), (variables, x))}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Returns the lines above the table, grouped by hidden units like the targets."""
    lines = []
    for group in dict.fromkeys(row["group"] for row in rows):
        part = [row for row in rows if row["group"] == group]
        for name in ("flax", "torch", "best"):
            with_it = [row for row in part if name == "best" or name in row["milliseconds"]]
            mean = geometric_mean([ratio(row, name) for row in with_it])
            lines.append(f"- {group}, against {name}: {mean}")
    with_torch = [row for row in rows if "torch" in row["milliseconds"]]
    return lines + losses("best", rows, NEAR) + losses("flax", rows) + losses("torch", with_torch)


HEADER = ("problem", "chosen", "ms", "best form", "flax", "PyTorch", "TFLOP/s", "TB/s", "roof")


def cells(row: dict[str, Any]) -> list[str]:
    times = row["milliseconds"]
    peers = [f"{ratio(row, n):.2f}" if n in times else "failed" for n in ("flax", "torch")]
    head = [row["problem"], row["chosen"], f"{times['auto']:.3f}", f"{ratio(row, 'best'):.2f}"]
    return [*head, *peers, *roofline(row["auto"])]


def page(recording: Recording) -> list[str]:
    """Returns the lines of the record as Markdown."""
    rows = [row for row in recording.rows if row["milliseconds"]]
    return [
        f"{heading('recurrent.py', recording)} Backward has the forward pass in it.",
        "",
        *summary(rows),
        *failures(recording.rows),
        "",
        *table(HEADER, *map(cells, rows)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--hidden", type=int, nargs="+", help="only these")
    parser.add_argument("--batch", type=int, nargs="+", help="only these")
    parser.add_argument("--steps", type=int, help="replaces the problems' steps")
    add_options(parser)
    options = parser.parse_args()
    contest = Contest(OPERATION, programs, lambda problem: (flops(problem), size(problem)))
    recording = contest.hold("recurrent", problems(options), options)
    print(recording.write_page(page(recording)))


if __name__ == "__main__":
    main()
