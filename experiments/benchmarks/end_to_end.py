"""Compares the rate of a whole training, with its input pipeline, to that of the bare step.

A training by the command line (simulated vehicles, 64 pixels, three channels, the full ResNet-18,
with augmentation) and the bare step of step_jax.py on a batch already on the device are timed in
turn.
The training's rate is the median of its records, without compilation, evaluation and checkpoints.

Run: python experiments/benchmarks/end_to_end.py [--steps 200] [--rounds 3]
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from training_step import Worker, machine

HERE = Path(__file__).parent


def overrides(steps: int, batch: int, folder: str) -> dict[str, object]:
    """Returns the configuration fields that differ from the default variant."""
    return {
        "data.data_dir": f"{folder}/data",
        "data.options.aspects": 72,
        "data.channels": 3,  # as the bare step; a gray first layer would cost less
        "model.width": 64,
        "train.batch_size": batch,
        "train.steps": steps,
        "train.evaluate_every": 1000.0,
    }


def trained(steps: int, batch: int, folder: str) -> list[float]:
    """Trains and returns the images per second of each record."""
    workdir = Path(folder) / "run"
    fields = overrides(steps, batch, folder)
    flags = [f"--config.{field}={value}" for field, value in fields.items()]
    command = [sys.executable, "-m", "jaxatr.train", "--config=configs/cbc.py"]
    root = HERE.parents[1]
    subprocess.run([*command, f"--workdir={workdir}", *flags], check=True, cwd=root)
    records = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    rates = [record["images_per_second"] for record in records if "images_per_second" in record]
    shutil.rmtree(workdir)
    return rates[2:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "end_to_end_cpu.json")
    options = parser.parse_args()
    bare, whole = [], []
    worker = Worker("step_jax.py", size=64, batch=options.batch)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            worker.seconds.clear()
            worker.turn(30)
            bare += [options.batch / seconds for seconds in worker.seconds]
            whole += trained(options.steps, options.batch, folder)
    worker.close()
    record = {
        **machine(),
        "batch": options.batch,
        "bare_images_per_s": round(statistics.median(bare), 1),
        "training_images_per_s": round(statistics.median(whole), 1),
        "ratio": round(statistics.median(whole) / statistics.median(bare), 3),
    }
    options.output.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
