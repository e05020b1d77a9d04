"""Options and on-demand timing of steps, shared by both workers of training_step.py."""

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
    parser.add_argument("--setting", default="", help="PyTorch's execution mode")
    parser.add_argument("--cache", default="", help="folder of jax's compilation cache")
    parser.add_argument("--find", type=int, default=0, help="1: run the find step on each problem")
    parser.add_argument("--keep", type=int, default=0, help="1: PyTorch keeps freed memory")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--network", default="resnet18", help="PyTorch's network")
    parser.add_argument("--onnx", default="", help="ONNX file of jaxatr's network")
    return parser.parse_args()


def serve(step: Callable[[], object]) -> None:
    """Runs the first step, then as many steps as each line of standard input requests.

    Answers are lines of JSON. An idle worker waits for its input and uses no processor time.

    Args:
      step: runs one step.
    """
    step()
    _answer({"first": True})
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        # Linux reports the peak resident memory in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        _answer({"seconds": times, "peak_mib": peak})


def _answer(answer: dict) -> None:
    print(json.dumps(answer), flush=True)
