"""Trains detectors on HIT-UAV for given hours, and torchvision's beside them; records the figures.

    python -m experiments.detection.hituav [--hours=2] [--only=all,fcos] [--prefix=hituav] [--list]

The runs, in this order: ``all`` four classes; ``fcos``, ``retinanet`` and ``ssdlite`` of
torchvision, from the same weights and for as many hours; ``without-bicycle`` and ``without-car``,
which are left out of the training and should be found as targets. A short training measures how
many steps fit into the hours on this machine; ``plan.json`` in the folder of the runs keeps the
number. On a GPU the hours are those of the wall, and the machine must be otherwise idle; on a CPU
they are the processor's, divided by ``--cores``. A run whose result is in ``results`` is not
repeated, and one that was interrupted goes on from its last checkpoint, so the same command
continues.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax

from experiments.named_runs import ROOT, Run, carry_out
from jaxatr import runs

RESULTS = Path(__file__).parent / "results"
CONFIG = "detect.py:hituav"
PEERS = ("fcos", "retinanet", "ssdlite")
SPLITS = {
    "all": "closed",
    "without-bicycle": "unknown:Bicycle",
    "without-car": "unknown:Car",
}
NAMES = ("all", *PEERS, "without-bicycle", "without-car")
COMMON = {
    "data.source": "{data}/hituav",
    "model.pretrained": "mobilenet_v2",
    "train.checkpoint_every": 100,
}
_PROBES = (10, 40)  # steps of two trainings, whose difference is timed
_TRAINING = 0.9  # share of the hours that is not spent on the validation scenes


def run_of(name: str, steps: int, prefix: str = "hituav") -> Run:
    """Returns a named run of so many steps."""
    fields: dict[str, Any] = {"open_set.split": SPLITS[name], "train.steps": steps}
    return Run(f"{prefix}-{name}", CONFIG, COMMON | fields)


def planned(workdir: Path, data: Path, hours: float, cores: int) -> dict[str, float]:
    """Returns the number of steps that fit into the hours, measured when it is asked for first.

    Raises:
      ValueError: the plan in the folder is for other hours.
    """
    path = workdir / "plan.json"
    if path.is_file():
        plan = json.loads(path.read_text())
        if plan["hours"] != hours:
            raise ValueError(f"--hours: got {hours:g}, but {path} is for {plan['hours']:g}")
        return plan
    fields: dict[str, Any] = {
        name: value.replace("{data}", str(data))
        for name, value in COMMON.items()
        if isinstance(value, str)
    }
    fields |= {"train.log_every": 10, "data.validation": 0.0}
    fields |= {"detection.validation_split": "", "train.end_with_best": False}
    print("measuring the seconds of a step", flush=True)

    def seconds(steps: int) -> float:
        started = _clock(cores)
        probe = workdir / f"probe-{steps}"
        own: dict[str, Any] = fields | {"train.steps": steps}
        runs.train_run("detect:hituav", probe, progress=False, **own)
        return _clock(cores) - started

    few, more = map(seconds, _PROBES)  # both start and compile
    step = (more - few) / (_PROBES[1] - _PROBES[0])
    plan = {
        "hours": hours,
        "seconds": step,
        "steps": max(1, round(_TRAINING * 3600 * hours / step)),
    }
    path.write_text(json.dumps(plan, indent=1) + "\n")
    return plan


def _clock(cores: int) -> float:
    """Returns the seconds of a GPU by the wall, of the processor by each of the cores in use."""
    if jax.default_backend() != "cpu":
        return time.monotonic()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (time.process_time() + children.ru_utime + children.ru_stime) / cores


def carry_out_peer(
    name: str, workdir: Path, data: Path, hours: float, *, cores: int, prefix: str
) -> None:
    """Trains and measures a detector of torchvision.

    Raises:
      subprocess.CalledProcessError: it failed; its output is in ``WORKDIR/PREFIX-NAME.log``.
    """
    script = Path(__file__).with_name("peer_torchvision.py")
    command = [sys.executable, str(script), f"--scenes={data / 'hituav'}", f"--model={name}"]
    command += [f"--hours={hours}", f"--out={RESULTS / f'{prefix}-{name}.json'}"]
    command += [f"--checkpoint={workdir / f'{prefix}-{name}.pt'}"]
    command += [f"--workers={max(0, cores // 4 - 1)}"]  # two cores: none
    # The peer uses jax for the weights and the data alone.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment |= {"OMP_NUM_THREADS": str(cores)}
    with open(workdir / f"{prefix}-{name}.log", "ab") as log:
        subprocess.run(command, check=True, env=environment, stdout=log, stderr=log)


def described(name: str, prefix: str = "hituav") -> str:
    """Describes a recorded result: AP50 by class, and the recall of classes left out."""
    path = RESULTS / f"{prefix}-{name}.json"
    if not path.is_file():
        return f"{name}: not run"
    result = json.loads(path.read_text())
    if name in PEERS:
        by_class = {c: row[1] for c, row in result["figures"]["by_class"].items()}
        return f"{name}: AP50 {_shares(by_class)}"
    measured = result["evaluation"]
    by_class = measured["average_precision"]["classes"]["by_class"]
    line = f"{name}: AP50 {_shares({c: row['ap50'] for c, row in by_class.items()})}"
    others = {c: row["recall"]["1"] for c, row in measured["classes"].items() if not row["known"]}
    more = f"; recall at 1 false alarm a scene of {_shares(others)}, not trained" if others else ""
    return line + more


def _shares(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def main() -> int:
    """Carries out the runs; returns the exit code, which is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--prefix", default="hituav", help="first part of the results' names")
    parser.add_argument("--list", action="store_true", help="show the results, without training")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/hituav")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if odd := set(chosen) - {*NAMES}:
        parser.error(f"--only: got {', '.join(sorted(odd))}, wanted some of {', '.join(NAMES)}")
    if given.list:
        print("\n".join(described(name, given.prefix) for name in chosen))
        return 0
    workdir, data = Path(given.workdir).absolute(), Path(given.data).absolute()
    if not (data / "hituav" / "train.json").is_file():
        parser.error(f"--data: HIT-UAV is not in {data}")
    weights = data / "weights" / "mobilenet_v2"
    if weights.is_dir():  # else those that are installed
        os.environ.setdefault("JAXATR_WEIGHTS_DIR", str(weights))
    os.environ["NPROC"] = str(given.cores)
    workdir.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    failed, shared = [], {"cores": given.cores, "prefix": given.prefix}
    for name in chosen:
        try:
            if name in PEERS:
                if not (RESULTS / f"{given.prefix}-{name}.json").is_file():
                    carry_out_peer(name, workdir, data, given.hours, **shared)
            else:
                plan = planned(workdir, data, given.hours, given.cores)
                record = RESULTS / f"{given.prefix}-plan.json"
                record.write_text(json.dumps(plan, indent=1) + "\n")
                run = run_of(name, int(plan["steps"]), given.prefix)
                if not run.done(RESULTS):
                    carry_out(run, RESULTS, workdir, data, cores=given.cores)
            print(described(name, given.prefix), flush=True)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"failed  {name}: {error}; see {workdir}/{given.prefix}-{name}.log", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
