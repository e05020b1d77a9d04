"""Trains a run, or continues it, and evaluates it at its end.

jaxatr train --config=NAME[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --config=FILE.py[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --workdir=DIR --baselines=conflabel,gopenmax
"""

import datetime
import os
import re
import sys
from collections.abc import Sequence
from functools import reduce
from operator import getitem
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from jaxatr import bundled, parallel, reporting, runs, training
from jaxatr import config as configuration
from jaxatr.cli import inputs
from jaxatr.cli.help_page import columns
from jaxatr.typing import Config

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")  # of Markdown


class _Parser(config_flags.config_flags.ConfigFileFlagParser):
    """Takes the name of a bundled configuration too."""

    def parse(self, path: str):
        return super().parse(bundled.locate(path))


def define_flags() -> None:
    """Defines the command's flags."""
    config_flags.DEFINE_config_file(
        "config",
        help_string="The configuration: one of the package's by name, or a file; after a colon one "
        "of its variants. --config.FIELD=VALUE sets any of its fields, as often as wanted.",
    )
    flags.FLAGS["config"].parser = _Parser("config")
    flags.DEFINE_string(
        "workdir",
        None,
        "The run's folder; a run that is there is continued. Default: runs/DATE-TIME.",
    )
    flags.DEFINE_list(
        "baselines",
        [],
        f"Train these besides, to compare with: {', '.join(sorted(runs.BASELINES))}. With "
        "--workdir alone, for a finished run.",
    )
    flags.DEFINE_bool("progress", True, "Show a progress bar.")


def description() -> str:
    """Adds the bundled configurations to the text of ``--help``, or the given one's fields."""
    text, name = (__doc__ or "").strip(), _named()
    if name:
        return (
            f"{text}\n\nfields of {name}, as --config.FIELD=VALUE:\n{_fields(bundled.load(name))}"
        )
    rows = []
    for name, summary, variants in bundled.described():
        rows += columns(name, summary, 14) + columns("", f"Variants: {', '.join(variants)}.", 14)
    return "\n\n".join(
        [
            text,
            "configurations:\n" + "\n".join(rows),
            f"Their files describe the variants: {bundled.folder()}\n"
            "`jaxatr train --config=cbc --help` describes the fields of cbc, and so on.",
        ]
    )


def _named() -> str:
    """Reads the configuration of the command line, which a page of help does not parse."""
    given = (argument.lstrip("-").partition("=") for argument in sys.argv[1:])
    return next((value for name, _, value in given if name == "config"), "")


def _fields(config: Config) -> str:
    """Lists a configuration's fields, each with its meaning and its value there."""
    rows, values = [], config.to_dict()
    for name, field in configuration.fields_of(config.task).items():
        value = reduce(getitem, name.split("."), values)
        meaning = _LINK.sub(r"\1", field.meaning).replace("`", "")
        rows += columns(name, f"{meaning}. Value: {value!r}.", 34)
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> None:
    """Trains, evaluates, prints the table and where everything is."""
    inputs.refuse(arguments)
    values = flags.FLAGS
    baselines = runs.check_baselines(values.baselines)
    _check(bool(baselines))
    parallel.initialize_from_environment()
    training.enable_compilation_cache()
    started = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    workdir = Path(values.workdir or f"runs/{started}")
    if values.config is not None:
        print("reading the data", flush=True)
        runs.train_run(
            values.config,
            workdir,
            progress=values.progress,
            begun_in=lambda folder: print(f"run folder: {folder}", flush=True),
        )
    with training.stopping_at_once():
        for baseline, folder in baselines.items():
            print(f"training {baseline} in {workdir / folder}", flush=True)
            runs.train_baseline(workdir, baseline, progress=values.progress)
        print("evaluating on the test data", flush=True)
        evaluation = runs.evaluate_run(workdir, progress=values.progress)
        print(reporting.report_of(workdir).text(evaluation))
    usage = training.task_of(workdir).usage.format(workdir=workdir)
    print(f"use it: jaxatr {usage}")


def _check(baselines: bool) -> None:
    """Refuses a command line without a configuration, or without the folder that it needs."""
    if flags.FLAGS.config is None and not (baselines and flags.FLAGS.workdir):
        raise ValueError("--config is missing: --config=cbc, or a file of your own")
    if os.environ.get("JAX_NUM_PROCESSES") and flags.FLAGS.workdir is None:
        raise ValueError("--workdir is missing: several processes need to be told the same one")
