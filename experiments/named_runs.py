"""Carries out named runs by the commands that a user would type, and records their results.

A run's evaluation and record are copied to ``results/NAME.json`` of its experiment. A run whose
file exists, with the same overrides and all of its scores and methods, is not repeated. An
interrupted run is resumed. A failed run is reported and does not stop the others; its output is in
``WORKDIR/NAME.log``. A run that tries a setting may diverge; its result is then the non-finite
loss. Data is read from ``JAXATR_DATA`` (default ``../shared/data``).

Several jobs divide the cores among them, which is faster on CPUs: two trainings on one core each
take less time than one after the other on both.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.records import recorded
from jaxatr.runs import BASELINES

ROOT = Path(__file__).parents[1]
_NONE = object()  # no override can have this value
# The training loop's messages about a loss, a checkpoint and embeddings.
_NOT_FINITE = r"the loss of step \d+ .* is (nan|-?inf)$|.* (is|are) not finite.*"


class Run(NamedTuple):
    """A named run.

    Attributes:
      name: name of its result.
      config: configuration file and variant below ``configs/``, such as ``"cbc.py:mstar"``.
      overrides: values by configuration field; in a string ``{runs}`` stands for the folder that
        contains all run folders, ``{data}`` for the data folder.
      archive: archive in the data folder, if it needs one.
      baselines: baselines to train additionally.
      scores: scores to evaluate; empty for the command's default.
      methods: explanation methods to evaluate, for a surrogate's run.
      exported: whether its network is exported next to its folder, as ``NAME.onnx``.
      may_diverge: whether a non-finite loss is a result (``diverged``) instead of a failure.
    """

    name: str
    config: str
    overrides: Mapping[str, Any]
    archive: str | None = None
    baselines: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    exported: bool = False
    may_diverge: bool = False

    def commands(self, workdir: Path, data: Path) -> list[list[str]]:
        """Returns the command lines that train, evaluate and export it."""
        flags = [
            f"--config.{field}={value}".replace("{runs}", str(workdir.parent)).replace(
                "{data}", str(data)
            )
            for field, value in self.overrides.items()
        ]
        if self.archive:
            flags.append(f"--config.data.source={data / self.archive}")
        train = ["train", f"--workdir={workdir}", "--noprogress"]
        commands = [[*train, f"--config=configs/{self.config}", *flags]]
        if (workdir / "evaluation.json").exists():  # already trained, maybe by an older version
            commands = []
        if self.baselines:
            commands.append([*train, f"--baselines={','.join(self.baselines)}"])
        evaluate = ["evaluate", f"--workdir={workdir}"]
        if self.scores:
            commands.append([*evaluate, f"--scores={','.join(self.all_scores)}"])
        if self.methods:
            commands.append([*evaluate, f"--methods={','.join(self.methods)}"])
        if self.exported:
            out = f"--out={workdir}.onnx"
            convert = ["convert", "export", f"--workdir={workdir}", out]
            convert += ["--layout=NCHW", "--score=none", "--takes=chips", "--nocard"]
            commands.append(convert)
        return [[sys.executable, "-m", "jaxatr", *command] for command in commands]

    def result(self, results: Path) -> dict[str, Any] | None:
        """Reads its recorded result; returns None if there is none with the same overrides."""
        result = recorded(results, self.name)
        return result if result is not None and not self.changed(result) else None

    def changed(self, result: Mapping[str, Any]) -> list[str]:
        """Lists the overrides whose values in a recorded result are not the present ones."""
        present = json.loads(json.dumps(dict(self.overrides)))
        earlier = result.get("overrides") or {}
        names = sorted({*present, *earlier})
        return [name for name in names if present.get(name, _NONE) != earlier.get(name, _NONE)]

    @property
    def all_scores(self) -> tuple[str, ...]:
        """Its scores and those of its baselines."""
        return (*self.scores, *(BASELINES[name].name for name in self.baselines))

    def done(self, results: Path) -> bool:
        """Whether its result is recorded, with all of its scores and methods."""
        result = self.result(results)
        if result is None:
            return False
        if self.may_diverge and "diverged" in result:
            return True
        evaluation = result["evaluation"]
        scores = evaluation.get("groups", {}).get("all", {}).get("scores", {})
        methods = evaluation.get("explanation", {}).get("methods", {})
        return set(self.all_scores) <= set(scores) and set(self.methods) <= set(methods)


def carry_out(
    run: Run, results: Path, workdir: Path, data: Path, *, cores: int | None = None
) -> None:
    """Trains and evaluates a run and records its result, unless it is done already.

    Raises:
      subprocess.CalledProcessError: a command failed; its output is in ``WORKDIR/NAME.log``.
    """
    if run.done(results):  # meanwhile, by another process
        return
    own = workdir / run.name
    workdir.mkdir(parents=True, exist_ok=True)
    environment = os.environ | ({} if cores is None else {"NPROC": str(cores)})
    started, processor = time.monotonic(), 0.0
    output = workdir / f"{run.name}.log"
    diverged = None
    try:
        with open(output, "ab") as log:
            for command in run.commands(own, data):
                options = {"cwd": ROOT, "env": environment, "stdout": log, "stderr": log}
                processor += _processor_seconds(command, options)
    except subprocess.CalledProcessError:
        diverged = _divergence(output) if run.may_diverge else None
        if diverged is None:
            raise
    result = {
        "run": run.name,
        "config": run.config,
        "overrides": dict(run.overrides),
        "baselines": list(run.baselines),
        "cores": cores or os.cpu_count(),
        "seconds": round(time.monotonic() - started),
        "processor_seconds": round(processor),
        "record": json.loads((own / "record.json").read_text()),
    }
    if diverged is None:
        result["validation"] = _last_validation(own)
        result["evaluation"] = json.loads((own / "evaluation.json").read_text())
    else:
        result["diverged"] = diverged
    if before := run.result(results):  # recorded with fewer scores; keep the time of the training
        times = ("seconds", "processor_seconds")
        result |= {name: before.get(name) for name in times}
    path = results / f"{run.name}.json"
    text = json.dumps(result, indent=1, default=str)
    path.write_text(portable(text, workdir, data) + "\n")


def _processor_seconds(command: list[str], options: Mapping[str, Any]) -> float:
    """Runs a command; returns the seconds of the processor that it took.

    Raises:
      subprocess.CalledProcessError: it failed.
    """
    process = subprocess.Popen(command, **options)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def portable(text: str, workdir: Path, data: Path) -> str:
    """Replaces the paths of this machine in a result's JSON text by names of the folders."""
    places = {"{runs}": workdir, "{data}": data, "{packages}": sysconfig.get_path("purelib")}
    if weights := os.environ.get("JAXATR_WEIGHTS_DIR"):
        places["{weights}"] = Path(weights)
    for name, place in places.items():
        text = text.replace(json.dumps(str(place))[1:-1], name)
    return text


def _divergence(output: Path) -> str | None:
    """Reads the error of a training with a non-finite loss; returns None for other errors."""
    last = output.read_text(errors="replace").splitlines()[-1:]
    match = re.search(_NOT_FINITE, last[0]) if last else None
    return match[0] if match else None


def _last_validation(workdir: Path) -> dict[str, Any] | None:
    """Reads the measures of a training's last evaluation on the validation part."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    records = [record for line in lines if (record := json.loads(line))["phase"] == "evaluate"]
    return records[-1] if records else None


def main(description: str, runs: Sequence[Run], results: Path, workdir: str) -> int:
    """Parses the flags and trains; returns the exit code, which is 1 if a run failed.

    Args:
      description: description for ``--help``.
      runs: all runs, in the order of training.
      results: folder of the results.
      workdir: default of ``--workdir``, the folder that contains the run folders.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="comma-separated prefixes of run names")
    parser.add_argument("--jobs", type=int, default=1, help="parallel runs, which share the cores")
    parser.add_argument("--list", action="store_true", help="list the runs, without training")
    default = os.environ.get("JAXATR_DATA", "../shared/data")
    parser.add_argument("--data", default=default, help="folder of the data")
    parser.add_argument("--workdir", default=workdir, help="folder that contains the run folders")
    flags = parser.parse_args()
    chosen = [run for run in runs if run.name.startswith(tuple(flags.only.split(",")))]
    if flags.jobs < 1:
        parser.error(f"--jobs: got {flags.jobs}, wanted at least 1")
    if not chosen:
        parser.error(f"--only: no run's name begins with {flags.only!r}")
    if flags.list:
        for run in chosen:
            print(f"{'done' if run.done(results) else 'open'}  {run.name}")
        return 0
    cores = max(1, (os.cpu_count() or 1) // flags.jobs) if flags.jobs > 1 else None
    folder, data = Path(flags.workdir).absolute(), Path(flags.data).absolute()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        waiting = {
            pool.submit(carry_out, run, results, folder, data, cores=cores): run.name
            for run in chosen
            if not run.done(results)
        }
        for future in concurrent.futures.as_completed(waiting):
            name = waiting[future]
            try:
                future.result()
                print(f"done    {name}", flush=True)
            except subprocess.CalledProcessError as error:
                failed.append(name)
                print(f"failed  {name}: {error}; see {folder / name}.log", flush=True)
    return 1 if failed else 0
