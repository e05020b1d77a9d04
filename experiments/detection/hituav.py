"""Trains detectors on HIT-UAV for given hours, and torchvision's beside them; records the figures.

    python -m experiments.detection.hituav [--hours=2] [--only=all,fcos] [--list]

The runs, in this order: ``all`` four classes; ``fcos`` and ``retinanet`` of torchvision, from the
same weights and for as many hours; ``without-bicycle`` and ``without-car``, which are left out of
the training and should be found as targets. A short training measures how many steps fit into the
hours on this machine, which must be otherwise idle; ``plan.json`` in the folder of the runs keeps
the number. A run whose result is in ``results`` is not repeated, and one that was interrupted goes
on from its last checkpoint, so the same command continues.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.named_runs import ROOT, Run, carry_out
from jaxatr import runs, training

RESULTS = Path(__file__).parent / "results"
CONFIG = "detect.py:hituav"
PEERS = ("fcos", "retinanet")
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
_PROBE = 30  # steps that are timed, of which the first ten are not counted
_TRAINING = 0.9  # share of the hours that is not spent on the validation scenes


def run_of(name: str, steps: int) -> Run:
    """Returns a named run of so many steps."""
    fields: dict[str, Any] = {"open_set.split": SPLITS[name], "train.steps": steps}
    return Run(f"hituav-{name}", CONFIG, COMMON | fields)


def planned(workdir: Path, data: Path, hours: float) -> dict[str, float]:
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
    fields |= {"train.steps": _PROBE, "train.log_every": 10, "data.validation": 0.0}
    fields |= {"detection.validation_split": "", "train.end_with_best": False}
    print("measuring the seconds of a step", flush=True)
    probe = runs.train_run("detect:hituav", workdir / "probe", progress=False, **fields)
    rates = [row["images_per_second"] for row in training.read_metrics(probe)][1:]
    rate, size = sum(rates) / len(rates), training.load_config(probe).train.batch_size
    steps = max(1, round(_TRAINING * 3600 * hours * rate / size))
    plan = {"hours": hours, "images_per_second": rate, "steps": steps}
    workdir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plan, indent=1) + "\n")
    return plan


def carry_out_peer(name: str, workdir: Path, data: Path, hours: float) -> None:
    """Trains and measures a detector of torchvision.

    Raises:
      subprocess.CalledProcessError: it failed; its output is in ``WORKDIR/hituav-NAME.log``.
    """
    script = Path(__file__).with_name("peer_torchvision.py")
    command = [sys.executable, str(script), f"--scenes={data / 'hituav'}", f"--model={name}"]
    command += [f"--hours={hours}", f"--out={RESULTS / f'hituav-{name}.json'}"]
    command += [f"--checkpoint={workdir / f'hituav-{name}.pt'}"]
    command += [f"--workers={max(0, (os.cpu_count() or 1) // 4 - 1)}"]  # two cores: none
    # The peer uses jax for the weights and the data alone.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    with open(workdir / f"hituav-{name}.log", "ab") as log:
        subprocess.run(command, check=True, env=environment, stdout=log, stderr=log)


def described(name: str) -> str:
    """Describes a recorded result: AP50 by class, and the recall of classes left out."""
    path = RESULTS / f"hituav-{name}.json"
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
    parser.add_argument("--list", action="store_true", help="show the results, without training")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default="runs/hituav")
    given = parser.parse_args()
    chosen = given.only.split(",")
    if odd := set(chosen) - {*NAMES}:
        parser.error(f"--only: got {', '.join(sorted(odd))}, wanted some of {', '.join(NAMES)}")
    if given.list:
        print("\n".join(map(described, chosen)))
        return 0
    workdir, data = Path(given.workdir).absolute(), Path(given.data).absolute()
    if not (data / "hituav" / "train.json").is_file():
        parser.error(f"--data: HIT-UAV is not in {data}")
    weights = data / "weights" / "mobilenet_v2"
    if weights.is_dir():  # else those that are installed
        os.environ.setdefault("JAXATR_WEIGHTS_DIR", str(weights))
    plan, failed = planned(workdir, data, given.hours), []
    RESULTS.mkdir(exist_ok=True)
    for name in chosen:
        try:
            if name not in PEERS:
                run = run_of(name, int(plan["steps"]))
                if not run.done(RESULTS):
                    carry_out(run, RESULTS, workdir, data)
            elif not (RESULTS / f"hituav-{name}.json").is_file():
                carry_out_peer(name, workdir, data, given.hours)
            print(described(name), flush=True)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"failed  {name}: {error}; see {workdir}/hituav-{name}.log", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
