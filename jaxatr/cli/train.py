"""Trains a run, or continues one, and evaluates it.

jaxatr train --config=NAME[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --config=FILE.py[:VARIANT] [--workdir=DIR] [--config.FIELD=VALUE ...]
jaxatr train --workdir=DIR --baselines=conflabel,gopenmax
"""

import datetime
import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags
from ml_collections import config_dict, config_flags

from jaxatr import bundled, resolve
from jaxatr.cli import inputs
from jaxatr.cli.help_page import columns

if TYPE_CHECKING:
    from jaxatr.typing import Config

_BASELINES = ("conflabel", "gopenmax")  # those of jaxatr.runs, which is slow to import
_OPTIONS = "data.options."
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")  # a link in Markdown


class _Parser(config_flags.config_flags.ConfigFileFlagParser):
    """A parser that also accepts the names of bundled configurations and all data set options."""

    def parse(self, path: str):
        config = super().parse(bundled.locate(path))
        _add_options(config, flags.FLAGS.read_flags_from_files(sys.argv, force_gnu=False))
        return config


def _add_options(config: "Config", argv: Sequence[str]) -> None:
    """Adds the options of the data set that the command line sets and the configuration lacks.

    They are added with their defaults, which tell ml_collections their types.

    Raises:
      KeyError: the data set has no such option.
    """
    given: dict[str, str] = {}
    for argument, following in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if re.match("--?config[.]", name):
            given[name.partition(".")[2]] = value if equals else following
    options = [name.removeprefix(_OPTIONS) for name in given if name.startswith(_OPTIONS)]
    lacking = [name for name in options if name not in config.data.options]
    if not lacking:
        return
    from jaxatr.data import sources  # late, to keep --help fast

    name = given.get("data.name") or config.data.name
    resolve.trust_names_in(name)  # the user's own
    source = sources.find(name)
    known = getattr(source, "options", {})
    if misspelt := next((name for name in lacking if name not in known), None):
        # In the form of ml_collections: the name, and a hint on a second line.
        hint = f"{source.name} has {', '.join(known)}" if source and known else ""
        raise KeyError(f"{misspelt!r}\n{hint}")
    with config.unlocked():
        for name in lacking:
            value = known[name].default
            if value is None:
                value = config_dict.placeholder(object)
            # Tuples are the only sequences that ml_collections parses.
            config.data.options[name] = tuple(value) if isinstance(value, list) else value


def define_flags() -> None:
    """Defines the command's flags."""
    config_flags.DEFINE_config_file(
        "config",
        help_string="The configuration: the name of a bundled one or a file, optionally followed "
        "by a colon and a variant. --config.FIELD=VALUE sets a field; repeatable.",
    )
    flags.FLAGS["config"].parser = _Parser("config")
    flags.DEFINE_string(
        "workdir",
        None,
        "The run's folder; an existing run is continued. Default: runs/DATE-TIME.",
    )
    flags.DEFINE_list(
        "baselines",
        [],
        f"Also train these baselines to compare with: {', '.join(_BASELINES)}. "
        "Without --config, for the finished run in --workdir.",
    )
    flags.DEFINE_bool("progress", True, "Show a progress bar.")


def description() -> str:
    """Returns the text of ``--help`` with the fields of --config, or else the bundled files."""
    text, name = (__doc__ or "").strip(), _named()
    if name:
        return f"{text}\n\nfields of {name}, as --config.FIELD=VALUE:\n{_fields(name)}"
    rows = []
    for name, summary, variants in bundled.described():
        rows += columns(name, summary, 14) + columns("", f"Variants: {', '.join(variants)}.", 14)
    return "\n\n".join(
        [
            text,
            "configurations:\n" + "\n".join(rows),
            f"The variants are described in the files in {bundled.folder()}.\n"
            "`jaxatr train --config=cbc --help` lists the fields of cbc, and so on.",
        ]
    )


def _named() -> str:
    """Returns the value of --config on the command line, which is not parsed for --help."""
    given = (argument.lstrip("-").partition("=") for argument in sys.argv[1:])
    return next((value for name, _, value in given if name == "config"), "")


def _fields(name: str) -> str:
    """Lists the fields of a configuration with their meanings and values."""
    from jaxatr import config as configuration  # late, to keep --help fast

    config = bundled.load(name)
    rows, values = [], config.to_dict()
    for name, field in configuration.fields_of(config.task).items():
        value = reduce(getitem, name.split("."), values)
        meaning = _LINK.sub(r"\1", field.meaning).replace("`", "")
        rows += columns(name, f"{meaning}. Value: {value!r}.", 34)
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> None:
    """Trains and evaluates a run; prints its folder, its figures and a command that uses it."""
    from jaxatr import parallel, reporting, runs, training  # late, to keep --help fast

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
            say=inputs.say,
        )
    with training.stopping_at_once():
        for baseline, folder in baselines.items():
            print(f"training {baseline} in {workdir / folder}", flush=True)
            runs.train_baseline(workdir, baseline, progress=values.progress)
        print("evaluating on the test data", flush=True)
        evaluation = runs.evaluate_run(workdir, progress=values.progress)
        print(reporting.report_of(workdir).text(evaluation))
    usage = training.task_of(workdir).usage.format(workdir=shlex.quote(str(workdir)))
    print(f"use it: jaxatr {usage}")


def _check(baselines: bool) -> None:
    """Checks that --config and --workdir are given where they are needed."""
    if flags.FLAGS.config is None and not (baselines and flags.FLAGS.workdir):
        raise ValueError("--config is missing: --config=cbc, or a file of your own")
    if os.environ.get("JAX_NUM_PROCESSES") and flags.FLAGS.workdir is None:
        raise ValueError("--workdir is missing: give the same one to every process")
