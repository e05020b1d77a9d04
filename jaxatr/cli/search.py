"""Searches values of configuration fields by successive halving on the validation data.

jaxatr search --config=NAME --workdir=DIR --fields='optimizer.learning_rate=log(1e-3,1e-1)'
              [--fields='optimizer.name=choice(sgd,adamw)' ...] --budget=2h|20
jaxatr search --workdir=DIR --budget=4h
"""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from jaxatr.cli import configuration, inputs


def define_flags() -> None:
    """Defines the command's flags."""
    configuration.define()
    flags.DEFINE_string(
        "workdir",
        None,
        "The search's folder; an existing search is continued, without --config by its own "
        "configuration. Default: runs/search-DATE-TIME.",
    )
    flags.DEFINE_multi_string(
        "fields",
        None,
        "A field to vary: FIELD=log(LOW,HIGH), FIELD=linear(LOW,HIGH) or FIELD=choice(A,B,…); "
        "repeatable.",
    )
    flags.DEFINE_string(
        "budget",
        None,
        "Time of all trials together, such as 2h or 90m, or their number.",
        required=True,
    )
    inputs.define_data(
        "The data's folder or archive: --config.data.source.",
        "Folder of prepared data sets: --config.data.data_dir.",
        former=False,
    )
    flags.DEFINE_bool("progress", True, "Show a progress bar for each trial.")


def main(arguments: Sequence[str]) -> None:
    """Searches, prints the trials, and evaluates the best one on the test data, once."""
    from jaxatr import reporting, runs, training  # late, to keep --help fast

    inputs.refuse(arguments)
    values = flags.FLAGS
    if values.config is None:
        if values.workdir is None:
            raise ValueError("--config is missing: --config=cbc, or a file of your own")
        if unused := inputs.given("data_source", "data_dir"):
            raise ValueError(f"--{next(iter(unused))} needs --config: the search has its data")
    training.enable_compilation_cache()
    started = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    found = runs.search_fields(
        values.config,
        Path(values.workdir or f"runs/search-{started}"),
        values.fields,
        values.budget,
        progress=values.progress,
        say=inputs.say,
    )
    header, *rows = found.table
    print(reporting.text_table(header, rows))
    print(f"best on the validation data: {found.value:.4f}, {found.winner}")
    with training.stopping_at_once():
        print("evaluating it on the test data", flush=True)
        evaluation = runs.evaluate_run(found.winner, progress=values.progress)
        print(reporting.results_text(found.winner, evaluation))
    print(f"its configuration: jaxatr train --config={shlex.quote(str(found.config))}")
