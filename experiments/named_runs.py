"""Named runs: the two commands that a user would type, and the result of each as one file.

A run's evaluation and record are copied to ``results/NAME.json`` of its experiment. A run whose
file is there, of the same overrides and with every score that it is to have, is not repeated; one
that was interrupted is continued; one that fails is named at the end, and its output is in
``WORKDIR/NAME.log``. A run that tries a setting may diverge, and then that is its result: the loss
that is not finite. Data is read from ``JAXATR_DATA`` (default ``../shared/data``).

With several jobs each has its share of the cores, which on CPU is the better use of them: two
trainings on a core each are faster than one after the other on both.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr.runs import BASELINES

ROOT = Path(__file__).parents[1]
# What the loop says of a loss, of what it would save, and of embeddings.
_NOT_FINITE = r"the loss of step \d+ .* is (nan|-?inf)$|.* (is|are) not finite.*"


class Run(NamedTuple):
    """A named run.

    Attributes:
      name: of its result.
      config: file and variant, below ``configs/``: ``"cbc.py:mstar"``.
      overrides: field to value; ``{runs}`` in a text is the folder that holds all runs' folders.
      archive: what it reads from the data folder, if anything.
      baselines: what is trained besides.
      scores: that its evaluation is to have; empty: the command's own choice.
      methods: explanations that its evaluation is to have, of a surrogate's run.
      exported: its network is written beside its folder, as ``NAME.onnx``.
      may_diverge: a loss that is not finite is its result (``diverged``), not a failure.
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
        """Returns the command lines that train and evaluate it."""
        values = {
            field: value.replace("{runs}", str(workdir.parent)) if isinstance(value, str) else value
            for field, value in self.overrides.items()
        }
        flags = [f"--config.{field}={value}" for field, value in values.items()]
        if self.archive:
            flags.append(f"--config.data.source={data / self.archive}")
        train = ["jaxatr.train", f"--workdir={workdir}", "--noprogress"]
        found = [[*train, f"--config=configs/{self.config}", *flags]]
        if (workdir / "evaluation.json").exists():  # by an older version: it is not touched again
            found = []
        if self.baselines:
            found.append([*train, f"--baselines={','.join(self.baselines)}"])
        evaluate = ["jaxatr.evaluate", f"--workdir={workdir}"]
        if self.scores:
            found.append([*evaluate, f"--scores={','.join(self.all_scores)}"])
        if self.methods:
            found.append([*evaluate, f"--methods={','.join(self.methods)}"])
        if self.exported:
            out = f"--out={workdir}.onnx"
            convert = ["jaxatr.convert", "export", f"--workdir={workdir}", out]
            convert += ["--layout=NCHW", "--score=none", "--takes=chips", "--nocard"]
            found.append(convert)
        return [[sys.executable, "-m", *command] for command in found]

    def result(self, results: Path) -> dict[str, Any] | None:
        """Reads its recorded result; None where that had other overrides."""
        path = results / f"{self.name}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        same = found.get("overrides") == json.loads(json.dumps(dict(self.overrides)))
        return found if same else None

    @property
    def all_scores(self) -> tuple[str, ...]:
        """Its scores with those of what is trained besides."""
        return (*self.scores, *(BASELINES[name].name for name in self.baselines))

    def done(self, results: Path) -> bool:
        """Whether its result is recorded, with every score and method that it is to have."""
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
    """Trains and evaluates a run, and records its result; one that is done is left as it is.

    Raises:
      subprocess.CalledProcessError: a command failed; its output is in ``WORKDIR/NAME.log``.
    """
    if run.done(results):  # by another process, since this one began
        return
    own = workdir / run.name
    workdir.mkdir(parents=True, exist_ok=True)
    environment = os.environ | ({} if cores is None else {"NPROC": str(cores)})
    started = time.monotonic()
    output = workdir / f"{run.name}.log"
    diverged = None
    try:
        with open(output, "ab") as log:
            for command in run.commands(own, data):
                subprocess.run(
                    command, check=True, cwd=ROOT, env=environment, stdout=log, stderr=log
                )
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
        "record": json.loads((own / "record.json").read_text()),
    }
    if diverged is None:
        result["validation"] = _last_validation(own)
        result["evaluation"] = json.loads((own / "evaluation.json").read_text())
    else:
        result["diverged"] = diverged
    if before := run.result(results):  # with fewer scores: what its training took is what it took
        result["seconds"] = before["seconds"]
    path = results / f"{run.name}.json"
    text = json.dumps(result, indent=1, default=str)
    # Where the runs lie is this machine's affair: the result has the overrides' name for it.
    path.write_text(text.replace(json.dumps(str(workdir))[1:-1], "{runs}") + "\n")


def _divergence(output: Path) -> str | None:
    """Reads the message of a training that its loss ended; None if it ended otherwise."""
    said = output.read_text(errors="replace").splitlines()[-1:]
    found = re.search(_NOT_FINITE, said[0]) if said else None
    return found[0] if found else None


def _last_validation(workdir: Path) -> dict[str, Any] | None:
    """Returns the figures of a training's last evaluation on its validation part."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    found = [record for line in lines if (record := json.loads(line))["phase"] == "evaluate"]
    return found[-1] if found else None


def main(description: str, runs: Sequence[Run], results: Path, workdir: str) -> int:
    """Parses the flags, trains, and returns the exit code: 1 where a run failed.

    Args:
      description: for ``--help``.
      runs: all of them, in the order in which they are trained.
      results: the folder of the results.
      workdir: default of ``--workdir``, below which every run has its folder.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="runs whose name begins so; several by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the cores")
    parser.add_argument("--list", action="store_true", help="say what is done, and train nothing")
    parser.add_argument("--data", default=os.environ.get("JAXATR_DATA", "../shared/data"))
    parser.add_argument("--workdir", default=workdir)
    flags = parser.parse_args()
    chosen = [run for run in runs if run.name.startswith(tuple(flags.only.split(",")))]
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
