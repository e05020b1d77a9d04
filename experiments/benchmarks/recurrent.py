"""Times recurrent layers, forward and backward, against flax's and torch's, on DeepBench's sizes.

Every algorithm that applies, flax's ``RNN(OptimizedLSTMCell)`` or ``RNN(GRUCell)``, and torch's
module (where torch is installed) run in turn in one process; the record holds the median of each.
DeepBench's vanilla networks are left out: flax has no such cell with ReLU.

Run: python experiments/benchmarks/recurrent.py [--cells lstm gru] [--hidden 256 512] [--batch 16]
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

sys.path.insert(0, str(Path(__file__).parent))
from alternating import alternately  # noqa: E402

from jaxatr.kernels import gru, lstm, recurrent  # noqa: E402
from jaxatr.kernels.ops.recurrent.algorithms import ALGORITHMS  # noqa: E402
from jaxatr.kernels.ops.recurrent.heuristic import choose  # noqa: E402
from jaxatr.kernels.ops.recurrent.problem import Problem  # noqa: E402

HERE = Path(__file__).parent
# Hidden units (as many inputs), batches and steps, of DeepBench's training problems.
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
ELSEWHERE = ("hopper", "tpu")  # kernels for other devices than this
PUBLIC: dict[str, Callable] = {"lstm": lstm, "gru": gru}
CELLS: dict[str, Any] = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}


def ours(problem: Problem, params: Any, x: jax.Array, name: str) -> dict[str, Callable]:
    def loss(params, x):
        return jnp.sum(PUBLIC[problem.cell](params, x, algorithm=name)[0])

    forward, both = jax.jit(loss), jax.jit(jax.grad(loss, (0, 1)))
    return {"forward": lambda: forward(params, x), "both": lambda: both(params, x)}


def flaxs(problem: Problem, params: Any, x: jax.Array) -> dict[str, Callable]:
    module = nn.RNN(CELLS[problem.cell](problem.hidden))
    (name,) = jax.eval_shape(module.init, jax.random.key(0), x)["params"]
    variables = {"params": {name: recurrent.to_flax(problem.cell, params[0][0])}}

    def loss(variables: Any, x: jax.Array) -> jax.Array:
        y: Any = module.apply(variables, x)
        return jnp.sum(y)

    forward, both = jax.jit(loss), jax.jit(jax.grad(loss, (0, 1)))
    return {"forward": lambda: forward(variables, x), "both": lambda: both(variables, x)}


def torchs(problem: Problem, params: Any, x: jax.Array) -> dict[str, Callable]:
    import torch

    kind = getattr(torch.nn, problem.cell.upper())
    module = kind(problem.inputs, problem.hidden, batch_first=True)
    state = recurrent.to_torch(problem.cell, params)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    images = torch.from_numpy(np.array(x)).requires_grad_()

    def forward() -> float:
        with torch.no_grad():
            return module(images)[0].sum().item()

    def both() -> None:
        module.zero_grad()
        images.grad = None
        module(images)[0].sum().backward()

    return {"forward": forward, "both": both}


def measured(problem: Problem, repeats: int) -> dict[str, Any]:
    """Returns the milliseconds of every contestant, and the ratio of flax's and torch's to ours."""
    params = recurrent.init(jax.random.key(0), problem.cell, problem.inputs, problem.hidden)
    x = jax.random.normal(jax.random.key(1), (problem.batch, problem.steps, problem.inputs))
    runs = {
        name: ours(problem, params, x, name)
        for name, algorithm in ALGORITHMS.items()
        if algorithm.applies(problem) and name not in ELSEWHERE
    }
    runs["flax"] = flaxs(problem, params, x)
    if util.find_spec("torch"):
        runs["torch"] = torchs(problem, params, x)
    chosen, row = choose(problem), {}
    for direction in ("forward", "both"):
        seconds = alternately({name: run[direction] for name, run in runs.items()}, repeats)
        row[direction] = {
            "milliseconds": {name: round(1e3 * value, 3) for name, value in seconds.items()},
            "times as fast": {
                peer: round(seconds[peer] / seconds[chosen], 2)
                for peer in ("flax", "torch")
                if peer in seconds
            },
        }
    size = {"cell": problem.cell, "hidden": problem.hidden, "batch": problem.batch}
    return size | {"steps": problem.steps, "chosen": chosen} | row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", choices=sorted(SIZES), default=list(SIZES))
    parser.add_argument("--hidden", type=int, nargs="+", help="only these")
    parser.add_argument("--batch", type=int, nargs="+", help="only these")
    parser.add_argument("--steps", type=int, help="other than the problem's")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "recurrent_cpu.json")
    options = parser.parse_args()
    rows = []
    for cell in options.cells:
        for hidden, batches, steps in SIZES[cell]:
            for batch in batches:
                if options.hidden and hidden not in options.hidden:
                    continue
                if options.batch and batch not in options.batch:
                    continue
                steps = options.steps or steps
                problem = Problem(cell, steps, batch, hidden, hidden, False, False, "float32")
                rows.append(measured(problem, options.repeats))
                print(json.dumps(rows[-1]), flush=True)
    device = jax.devices()[0].device_kind
    record = {"jax": jax.__version__, "device": device, "cores": os.cpu_count()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
