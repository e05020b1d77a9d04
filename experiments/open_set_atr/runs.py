"""Trains the named runs of the open-set paper's tables, one after another; what is done is kept.

    python experiments/open_set_atr/runs.py [--only=mstar] [--data=FOLDER] [--workdir=runs]

Each run is the command that a user would type. Its evaluation and record are copied to
``results/NAME.json``; a run whose file is there is not repeated, and one that was interrupted is
continued. MSTAR and CIFAR-10 are read from ``JAXATR_DATA`` (default ``../shared/data``).
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ROOT = HERE.parents[1]


class Run(NamedTuple):
    """A named run: variant of ``configs/cbc.py``, its overrides, and the archive that it reads."""

    name: str
    variant: str
    overrides: dict[str, object]
    archive: str | None = None

    def command(self, workdir: Path, data: Path) -> list[str]:
        """Returns the command line that trains it."""
        flags = [f"--config.{field}={value}" for field, value in self.overrides.items()]
        if self.archive:
            flags.append(f"--config.data.source={data / self.archive}")
        config = f"--config=configs/cbc.py:{self.variant}"
        return [sys.executable, "-m", "jaxatr.train", config, f"--workdir={workdir}", *flags]


def mstar() -> list[Run]:
    """Three splits, three seeds; with the binary classifiers, and as plain classifiers."""
    kinds = {"cbc": {}, "plain": {"loss.open": "none", "loss.entropy_weight": 0.0}}
    return [
        Run(
            f"mstar-{split}-{kind}-{seed}",
            "mstar",
            {"open_set.split": f"mstar/reference-{split}", "seed": seed, **overrides},
            "mstar10.tar.gz",
        )
        for seed in range(3)
        for kind, overrides in kinds.items()
        for split in range(3)
    ]


def cifar10() -> list[Run]:
    """The paper code's split and recipe, from scratch."""
    return [Run("cifar10-paper-code-0", "cifar10", {"seed": 0}, "cifar10.tar.gz")]


def simulated() -> list[Run]:
    """The cells of table 1: three ranges and all of them, two bands; 5,000 steps of 16 each.

    The network is the default variant's, of half the usual width.
    """
    ranges = {"1000": (1000,), "2000": (2000,), "3000": (3000,), "combined": (1000, 2000, 3000)}
    return [
        Run(
            f"simulated-{name}-{band}-0",
            "default",
            {
                "data.options.ranges": f"({', '.join(map(str, metres))},)",
                "data.options.bands": f"('{band}',)",
                "train.steps": 5000,
                "train.batch_size": 16,
                "optimizer.learning_rate": 0.015,
                "seed": 0,
            },
        )
        for name, metres in ranges.items()
        for band in ("visible", "thermal")
    ]


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    return [Run("default-0", "default", {}), *mstar(), *cifar10(), *simulated()]


def carry_out(run: Run, workdir: Path, data: Path) -> None:
    """Trains a run, unless its result is recorded, and records its result."""
    recorded = RESULTS / f"{run.name}.json"
    if recorded.exists():
        return
    command = run.command(workdir, data)
    print(f"{run.name}: {' '.join(command)}", flush=True)
    started = time.monotonic()
    subprocess.run(command, check=True, cwd=ROOT)
    record = json.loads((workdir / "record.json").read_text())
    result = {
        "run": run.name,
        "variant": run.variant,
        "overrides": run.overrides,
        "seconds": round(time.monotonic() - started),
        "evaluation": json.loads((workdir / "evaluation.json").read_text()),
        "record": record,
    }
    recorded.write_text(json.dumps(result, indent=1, default=str) + "\n")


def main() -> None:
    """Parses the flags and trains."""
    parser = argparse.ArgumentParser(
        description="Trains the named runs of the open-set paper's tables."
    )
    parser.add_argument("--only", default="", help="train the runs whose name begins so")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/open_set_atr")
    flags = parser.parse_args()
    for run in all_runs():
        if run.name.startswith(flags.only):
            carry_out(run, Path(flags.workdir) / run.name, Path(flags.data).absolute())


if __name__ == "__main__":
    main()
