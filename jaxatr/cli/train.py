"""Trains a run, or continues one, and evaluates it.

jaxatr train --config=NAME[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --config=FILE.py[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --config=NAME --repeats=seeds:3|folds:5 [--config.data.group_by=COLUMN|folder]
jaxatr train --workdir=DIR [--more_epochs=N]
jaxatr train --workdir=DIR --baselines=conflabel,gopenmax
"""

import datetime
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxatr import parts
from jaxatr.cli import configuration, inputs


def define_flags() -> None:
    """Defines the command's flags."""
    configuration.define()
    flags.DEFINE_string(
        "workdir",
        None,
        "The run's folder; an existing run is continued, without --config by its own "
        "configuration. Default: runs/DATE-TIME.",
    )
    flags.DEFINE_string(
        "repeats",
        None,
        "Train several runs and show mean and spread: seeds:3 with three seeds, folds:5 with each "
        "fifth of the training data held out once.",
    )
    flags.DEFINE_integer(
        "more_epochs", None, "Further epochs of the finished run in --workdir; no --config.", 1
    )
    inputs.define_data(
        "The data's folder or archive: --config.data.source.",
        "Folder of prepared data sets: --config.data.data_dir.",
        former=False,
    )
    baselines = parts.files("jaxatr.runs.baselines", "beside")  # slow to import
    flags.DEFINE_list(
        "baselines",
        [],
        f"Also train these baselines to compare with: {', '.join(baselines)}. "
        "Without --config, for the finished run in --workdir.",
    )
    flags.DEFINE_bool("progress", True, "Show a progress bar.")


def description(arguments: Sequence[str]) -> str:
    """Returns the text of ``--help`` with the fields of --config, or else the bundled files."""
    return f"{(__doc__ or '').strip()}\n\n{configuration.described(arguments)}"


def main(arguments: Sequence[str]) -> None:
    """Trains and evaluates a run; prints its folder, its figures and a command that uses it."""
    from jaxatr import parallel, reporting, runs, training  # late, to keep --help fast
    from jaxatr.reporting.recorded_repeats import TOGETHER

    inputs.refuse(arguments)
    values = flags.FLAGS
    baselines = runs.check_baselines(values.baselines)
    _check(bool(baselines))
    parallel.initialize_from_environment()
    training.enable_compilation_cache()
    started = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    workdir = Path(values.workdir or f"runs/{started}")
    if values.config is not None or not baselines:
        # With --config, its fields have the place of the data already.
        given = {} if values.config is not None else inputs.data_place()
        place: dict[str, Any] = {f"data.{name}": value for name, value in given.items()}
        data_dir = values.data_dir if values.config is None else values.config.data.data_dir
        print("reading the data", flush=True)
        runs.train_run(
            values.config,
            workdir,
            repeats=values.repeats,
            more_epochs=values.more_epochs,
            progress=values.progress,
            begun_in=_begun(data_dir or ""),
            say=inputs.say,
            **place,
        )
    with training.stopping_at_once():
        for baseline, folder in baselines.items():
            print(f"training {baseline} in {workdir / folder}", flush=True)
            runs.train_baseline(workdir, baseline, progress=values.progress)
        print("evaluating on the test data", flush=True)
        if (several := training.read_repeats(workdir)) is not None:
            evaluation = runs.evaluate_repeats(several, only_missing=True, progress=values.progress)
        else:
            evaluation = runs.evaluate_run(workdir, progress=values.progress)
        print(reporting.results_text(workdir, evaluation))
    used = workdir
    if several and not any(TOGETHER in one for one in evaluation["figures"].values()):
        used = several.runs[0]  # runs that cannot decide together
    usage = training.task_of(several.runs[0] if several else workdir).usage
    print(f"use it: jaxatr {usage.format(workdir=shlex.quote(str(used)))}")


def _begun(data_dir: str) -> Callable[[Path], None]:
    """Returns a function that prints the run's folder, and a new folder of prepared data."""
    is_new = bool(data_dir) and not Path(data_dir).expanduser().exists()

    def say(folder: Path) -> None:
        if is_new and Path(data_dir).expanduser().exists():
            print(f"made the folder {data_dir} for the prepared data", flush=True)
        print(f"run folder: {folder}", flush=True)

    return say


def _check(baselines: bool) -> None:
    """Checks that --config and --workdir are given where they are needed."""
    config, workdir = flags.FLAGS.config, flags.FLAGS.workdir
    files = ("config.json", "repeats.json")
    is_run = workdir is not None and (
        baselines or any(Path(workdir, name).exists() for name in files)
    )
    if config is None and not is_run:
        why = f"; {workdir} has no run to continue" if workdir else ""
        raise ValueError(f"--config is missing: --config=cbc, or a file of your own{why}")
    if baselines:
        inputs.check_unused("repeats", by="baselines")
    if config is not None:
        inputs.check_unused("more_epochs", by="config")
    elif baselines:
        inputs.check_unused("more_epochs", by="baselines")
        if unused := inputs.given("data_source", "data_dir"):
            raise ValueError(f"--{next(iter(unused))} needs --config: a finished run has its data")
    if os.environ.get("JAX_NUM_PROCESSES") and flags.FLAGS.workdir is None:
        raise ValueError("--workdir is missing: give the same one to every process")
