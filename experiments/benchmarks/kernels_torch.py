"""The worker of kernels.py that runs PyTorch; see there.

A line of JSON on its input is a problem, which it gets ready for; an empty line asks for one run,
and is answered with the seconds that it took. Images are channels_last, PyTorch's fast layout.
"""

import json
import sys
import time

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def ready(problem: dict):
    """Returns a function that computes the direction, and waits for it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    (n, h, w, c), (kh, kw, depth, k) = problem["x_shape"], problem["w_shape"]
    options = {"device": device, "dtype": DTYPES[problem["dtype"]]}
    x = torch.randn(n, c, h, w, **options).to(memory_format=torch.channels_last)
    weight = torch.randn(k, depth, kh, kw, **options).to(memory_format=torch.channels_last)
    pad = [edges[0] for edges in problem["padding"]]
    shape = problem["stride"], pad, problem["dilation"]
    forward = torch.ops.aten.convolution
    y = torch.randn_like(forward(x, weight, None, *shape, False, [0, 0], problem["groups"]))

    @torch.no_grad()
    def run():
        if problem["direction"] == "forward":
            forward(x, weight, None, *shape, False, [0, 0], problem["groups"])
        else:
            mask = [problem["direction"] == "data", problem["direction"] == "weight", False]
            torch.ops.aten.convolution_backward(
                y, x, weight, None, *shape, False, [0, 0], problem["groups"], mask
            )
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def main() -> None:
    run = None
    for line in sys.stdin:
        if line.strip():
            run = ready(json.loads(line))
            run()
            print("ready", flush=True)
        elif run is not None:
            start = time.perf_counter()
            run()
            print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
