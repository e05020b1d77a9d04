"""The worker that runs PyTorch for kernels.py and recurrent.py; see torch_peer.py.

A line of JSON on standard input describes a problem, which the worker prepares. An empty line
requests a turn of runs; the answer is the seconds of one run. The answer to a failure is its
message, and the process exits, because some failures leave a GPU unusable. PyTorch runs in its fast
settings: images are channels_last, a CPU uses all cores, and on a GPU cuDNN benchmarks its
algorithms.
"""

from jaxatr import memory

if __name__ == "__main__":  # like jaxatr's process, before the imports below start threads
    memory.keep()

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from clock import cores, several

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def convolution(problem: dict[str, Any]) -> Callable[[], object]:
    """Returns a function that computes a direction of a convolution."""
    (n, h, w, c), (kh, kw, depth, k) = problem["x_shape"], problem["w_shape"]
    options: Any = {"device": DEVICE, "dtype": DTYPES[problem["dtype"]]}
    x = torch.randn(n, c, h, w, **options).to(memory_format=torch.channels_last)
    weight = torch.randn(k, depth, kh, kw, **options).to(memory_format=torch.channels_last)
    pad = [edges[0] for edges in problem["padding"]]
    shape = problem["stride"], pad, problem["dilation"]
    forward = torch.ops.aten.convolution
    y = torch.randn_like(forward(x, weight, None, *shape, False, [0, 0], problem["groups"]))

    @torch.no_grad()
    def run() -> None:
        if problem["direction"] == "forward":
            forward(x, weight, None, *shape, False, [0, 0], problem["groups"])
        else:
            mask = [problem["direction"] == "data", problem["direction"] == "weight", False]
            torch.ops.aten.convolution_backward(
                y, x, weight, None, *shape, False, [0, 0], problem["groups"], mask
            )

    return run


def recurrent(problem: dict[str, Any]) -> Callable[[], object]:
    """Returns a function that computes the sum of a layer's outputs, or also its gradients."""
    options: Any = {"device": DEVICE, "dtype": DTYPES[problem["dtype"]]}
    kind = getattr(torch.nn, problem["cell"].upper())
    module = kind(problem["inputs"], problem["hidden"], batch_first=True, **options)
    x = torch.randn(problem["batch"], problem["steps"], problem["inputs"], **options)

    @torch.no_grad()
    def forward() -> None:
        module(x)[0].sum()

    def both() -> None:
        module.zero_grad()
        x.grad = None
        module(x)[0].sum().backward()

    x.requires_grad_(problem["direction"] == "backward")
    return forward if problem["direction"] == "forward" else both


READY = {"convolution": convolution, "recurrent": recurrent}


def timed(run: Callable[[], object]) -> float:
    """Runs once, waits for the device, and returns the seconds."""
    start = time.perf_counter()
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(cores())
    turn = None
    try:
        for line in sys.stdin:
            if line.strip():
                problem = json.loads(line)
                turn = several(partial(timed, READY[problem.pop("operation")](problem)))
            if turn is not None:
                print(turn(), flush=True)
    except Exception as error:
        print("failed:", " ".join(f"{type(error).__name__}: {error}".split()), flush=True)
        raise


if __name__ == "__main__":
    main()
