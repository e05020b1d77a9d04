"""Trains and evaluates the named runs behind the open-set paper's tables; what is done is kept.

    python -m experiments.open_set_atr.run [--only=mstar,table1-1000] [--jobs=2] [--list]

Each run is the two commands that a user would type, ``jaxatr.train`` and ``jaxatr.evaluate``. Its
evaluation and record are copied to ``results/NAME.json``. A run whose file is there, with every
score that it is to have, is not repeated; one that was interrupted is continued; one that fails is
named at the end, and its output is in ``WORKDIR/NAME.log``. MSTAR and CIFAR-10 are read from
``JAXATR_DATA`` (default ``../shared/data``).

With several jobs each has its share of the cores, which on CPU is the better use of them: two
trainings on a core each are faster than one after the other on both.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ROOT = HERE.parents[1]

SCORES = ("softmax", "mls", "openmax", "energy", "odin", "mahalanobis", "knn", "conflabel")
"""The scores of one network, whatever it was trained with; ViM needs wider features than some."""

TRAINED = {"conflabel": "conflabel_detector", "gopenmax": "gopenmax"}
RANGES = {"1000": (1000,), "2000": (2000,), "3000": (3000,), "combined": (1000, 2000, 3000)}
BANDS = ("visible", "thermal")


class Run(NamedTuple):
    """A named run.

    Attributes:
      name: of its result.
      variant: of ``configs/cbc.py``.
      overrides: field to value.
      archive: what it reads from the data folder, if anything.
      baselines: what is trained besides.
      scores: that its evaluation is to have; empty: the command's own choice.
    """

    name: str
    variant: str
    overrides: Mapping[str, Any]
    archive: str | None = None
    baselines: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()

    def commands(self, workdir: Path, data: Path) -> list[list[str]]:
        """Returns the command lines that train and evaluate it."""
        flags = [f"--config.{field}={value}" for field, value in self.overrides.items()]
        if self.archive:
            flags.append(f"--config.data.source={data / self.archive}")
        config = f"--config=configs/cbc.py:{self.variant}"
        train = ["jaxatr.train", f"--workdir={workdir}", "--noprogress"]
        found = [[*train, config, *flags]]
        if (workdir / "evaluation.json").exists():  # by an older version: it is not touched again
            found = []
        if self.baselines:
            found.append([*train, f"--baselines={','.join(self.baselines)}"])
        if self.scores:
            scores = f"--scores={','.join(self.all_scores)}"
            found.append(["jaxatr.evaluate", f"--workdir={workdir}", scores])
        return [[sys.executable, "-m", *command] for command in found]

    @property
    def all_scores(self) -> tuple[str, ...]:
        """Its scores with those of what is trained besides."""
        return (*self.scores, *(TRAINED[name] for name in self.baselines))

    @property
    def done(self) -> bool:
        """Whether its result is recorded, with every score that it is to have."""
        path = RESULTS / f"{self.name}.json"
        if not path.exists():
            return False
        recorded = json.loads(path.read_text())["evaluation"]["groups"]["all"]["scores"]
        return set(self.all_scores) <= set(recorded)


def mstar() -> list[Run]:
    """Three splits, three seeds; with the binary classifiers, and as plain classifiers.

    The first have every score, and the baselines beside them.
    """
    plain = {"loss.open": "none", "loss.entropy_weight": 0.0}
    found = []
    for seed in range(3):
        for kind, overrides in (("cbc", {}), ("plain", plain)):
            for split in range(3):
                whole = kind == "cbc"
                found.append(
                    Run(
                        f"mstar-{split}-{kind}-{seed}",
                        "mstar",
                        {"open_set.split": f"mstar/reference-{split}", "seed": seed, **overrides},
                        "mstar10.tar.gz",
                        baselines=("conflabel", "gopenmax") if whole else (),
                        scores=(*SCORES, "cbc", "vim") if whole else (),
                    )
                )
    return found


def cifar10() -> list[Run]:
    """The paper code's split and recipe, from scratch."""
    return [Run("cifar10-paper-code-0", "cifar10", {"seed": 0}, "cifar10.tar.gz")]


def simulated() -> list[Run]:
    """Three ranges and all of them, two bands, one seed; 5,000 steps of 16 each.

    The network is the default variant's, of half the usual width.
    """
    return [
        Run(
            f"simulated-{name}-{band}-0",
            "default",
            {
                **_cell(name, band),
                "train.steps": 5000,
                "train.batch_size": 16,
                "optimizer.learning_rate": 0.015,
                "seed": 0,
            },
        )
        for name in RANGES
        for band in BANDS
    ]


def table1() -> list[Run]:
    """Tables 1 and 2: the DSIAC protocol, three random splits and three seeds of every cell.

    A small network (a quarter of the usual width) and a short training (1,000 steps of 32), so that
    all 72 runs fit a machine without an accelerator.
    """
    return [
        Run(
            f"table1-{name}-{band}-{split}-{seed}",
            "default",
            {**_cell(name, band), **_SHORT, "open_set.split_seed": split, "seed": seed},
            baselines=("conflabel",),
            scores=(*SCORES, "cbc"),
        )
        for seed in range(3)
        for split in range(3)
        for name in RANGES
        for band in BANDS
    ]


def table4() -> list[Run]:
    """The ablation on all ranges together; its last row is that of table 1."""
    kinds = {"bce-entropy": {"loss.open": "bce"}, "cbc": {"loss.entropy_weight": 0.0}}
    return [
        Run(
            f"table4-{kind}-{band}-{split}-{seed}",
            "default",
            {**_cell("combined", band), **_SHORT, "open_set.split_seed": split, "seed": seed}
            | overrides,
        )
        for seed in range(3)
        for split in range(3)
        for kind, overrides in kinds.items()
        for band in BANDS
    ]


_SHORT = {"model.width": 16, "train.steps": 1000}


def _cell(name: str, band: str) -> dict[str, str]:
    metres = ", ".join(map(str, RANGES[name]))
    return {"data.options.ranges": f"({metres},)", "data.options.bands": f"('{band}',)"}


def all_runs() -> list[Run]:
    """Returns every run, in the order in which they are trained."""
    default = Run("default-0", "default", {})
    return [default, *mstar(), *cifar10(), *simulated(), *table1(), *table4()]


def carry_out(run: Run, workdir: Path, data: Path, *, cores: int | None = None) -> None:
    """Trains and evaluates a run, and records its result; one that is done is left as it is.

    Raises:
      subprocess.CalledProcessError: a command failed; its output is in ``WORKDIR/NAME.log``.
    """
    if run.done:  # by another process, since this one began
        return
    own = workdir / run.name
    workdir.mkdir(parents=True, exist_ok=True)
    environment = os.environ | ({} if cores is None else {"NPROC": str(cores)})
    started = time.monotonic()
    with open(workdir / f"{run.name}.log", "ab") as log:
        for command in run.commands(own, data):
            subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=log, stderr=log)
    result = {
        "run": run.name,
        "variant": run.variant,
        "overrides": dict(run.overrides),
        "baselines": list(run.baselines),
        "cores": cores or os.cpu_count(),
        "seconds": round(time.monotonic() - started),
        "evaluation": json.loads((own / "evaluation.json").read_text()),
        "record": json.loads((own / "record.json").read_text()),
    }
    path = RESULTS / f"{run.name}.json"
    if path.exists():  # with fewer scores: what its training took is what it took
        result["seconds"] = json.loads(path.read_text())["seconds"]
    path.write_text(json.dumps(result, indent=1, default=str) + "\n")


def main() -> int:
    """Parses the flags, trains, and returns the exit code: 1 where a run failed."""
    parser = argparse.ArgumentParser(
        description="Trains the named runs behind the open-set paper's tables."
    )
    parser.add_argument("--only", default="", help="runs whose name begins so; several by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the cores")
    parser.add_argument("--list", action="store_true", help="say what is done, and train nothing")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/open_set_atr")
    flags = parser.parse_args()
    chosen = [run for run in all_runs() if run.name.startswith(tuple(flags.only.split(",")))]
    if not chosen:
        parser.error(f"--only: no run's name begins with {flags.only!r}")
    if flags.list:
        for run in chosen:
            print(f"{'done' if run.done else 'open'}  {run.name}")
        return 0
    cores = max(1, (os.cpu_count() or 1) // flags.jobs) if flags.jobs > 1 else None
    workdir, data = Path(flags.workdir).absolute(), Path(flags.data).absolute()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        waiting = {
            pool.submit(carry_out, run, workdir, data, cores=cores): run.name
            for run in chosen
            if not run.done
        }
        for future in concurrent.futures.as_completed(waiting):
            name = waiting[future]
            try:
                future.result()
                print(f"done    {name}", flush=True)
            except subprocess.CalledProcessError as error:
                failed.append(name)
                print(f"failed  {name}: {error}; see {workdir / name}.log", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
