"""Times a training's first step from the start of its process, against PyTorch.

New processes run in turn: ours without a compilation cache, ours filling one, ours with a filled
one, and PyTorch. The record has medians of a few rounds, and the peak memory. The step is that of
``training_step.py``.

Run: python experiments/benchmarks/first_step.py [--size 64] [--rounds 3]
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from training_step import HERE, Worker, machine

OUTPUT = HERE / "results" / "first_step_cpu.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    common = {"mode": "training", "size": options.size, "batch": options.batch}
    rows: dict[str, list[tuple[float, float]]] = {}
    more: dict[str, Any]
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for name, script, more in (
                ("cold", "step_jax.py", {}),
                ("filling the cache", "step_jax.py", {"cache": cache}),
                ("cached", "step_jax.py", {"cache": cache}),
                ("torch eager", "step_torch.py", {"setting": "eager"}),
            ):
                worker = Worker(script, **common, **more)
                worker.turn(3)
                worker.close()
                rows.setdefault(name, []).append((worker.first_step, worker.peak_mib))
    contenders = {
        name: {
            "first_step_s": round(statistics.median(seconds for seconds, _ in measured), 1),
            "peak_mib": round(statistics.median(peak for _, peak in measured)),
        }
        for name, measured in rows.items()
    }
    record = {**machine(), "size": options.size, "batch": options.batch, "contenders": contenders}
    options.output.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(contenders, indent=2))


if __name__ == "__main__":
    main()
