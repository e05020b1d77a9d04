"""Trains a run, or continues it, and evaluates it at its end.

python -m jaxatr.train --config=configs/cbc.py[:variant] [--workdir=DIR] [--config.field=value]
python -m jaxatr.train --workdir=DIR --baselines=conflabel,gopenmax
"""

import datetime
import os
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from jaxatr import command, parallel, reporting, runs, training


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    config_flags.DEFINE_config_file("config", help_string="Configuration file[:variant].")
    flags.DEFINE_string(
        "workdir",
        None,
        "The run's folder; a run that is there is continued. Default: runs/DATE-TIME.",
    )
    flags.DEFINE_list(
        "baselines", [], "What to train besides, to compare with: conflabel,gopenmax."
    )
    flags.DEFINE_bool("progress", True, "Show a progress bar.")


def main(arguments) -> None:
    """Trains, evaluates, prints the table and where everything is."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write --name=value")
    baselines = runs.check_baselines(flags.FLAGS.baselines)
    if flags.FLAGS.config is None and not (baselines and flags.FLAGS.workdir):
        raise ValueError("--config is missing: --config=configs/cbc.py")
    if os.environ.get("JAX_NUM_PROCESSES") and flags.FLAGS.workdir is None:
        raise ValueError("--workdir is missing: several processes need to be told the same one")
    parallel.initialize_from_environment()
    training.enable_compilation_cache()
    started = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    workdir = Path(flags.FLAGS.workdir or f"runs/{started}")
    print(f"run folder: {workdir}", flush=True)
    if flags.FLAGS.config is not None:
        runs.train_run(flags.FLAGS.config, workdir, progress=flags.FLAGS.progress)
    with training.stopping_at_once():
        for baseline in baselines:
            print(f"training {baseline} in {workdir / baseline}", flush=True)
            runs.train_baseline(workdir, baseline, progress=flags.FLAGS.progress)
        print("evaluating on the test data", flush=True)
        evaluation = runs.evaluate_run(workdir)
        print(reporting.report_of(workdir).text(evaluation))
    usage = training.task_of(workdir).usage.format(workdir=workdir)
    print(f"use it: jaxatr {usage}")


if __name__ == "__main__":
    command.run(main, define_flags)
