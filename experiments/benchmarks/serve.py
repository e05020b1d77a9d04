"""Shared by both workers of training_step.py: options, and steps timed on demand."""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable


def parse(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mode", choices=["training", "inference"], default="training")
    parser.add_argument("--size", type=int, default=64, help="image height and width")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--setting", default="", help="how PyTorch runs its network")
    parser.add_argument("--cache", default="", help="folder of jax's compilation cache")
    parser.add_argument("--find", type=int, default=0, help="1: measure what computes each problem")
    parser.add_argument("--keep", type=int, default=0, help="1: PyTorch keeps memory, as we do")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--network", default="resnet18", help="what PyTorch writes out")
    parser.add_argument("--onnx", default="", help="file that our network is read from")
    return parser.parse_args()


def serve(step: Callable[[], object], settle: Callable[[], object] = lambda: None) -> None:
    """Takes the first step, then as many as each line of the input asks for; answers in JSON.

    ``settle`` is called once, after the first step. An idle worker waits for its input, so that it
    takes no processor time from the other.
    """
    step()
    settle()
    _answer({"first": True})
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        # Linux counts the peak resident memory in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        _answer({"seconds": times, "peak_mib": peak})


def _answer(answer: dict) -> None:
    print(json.dumps(answer), flush=True)
