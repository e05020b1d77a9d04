"""Evaluates a trained run, or an ensemble of runs, on its test data, and prints the figures.

jaxatr evaluate --workdir=DIR [--checkpoint=latest|best|STEP] [--scores=all]
jaxatr evaluate --workdir=DIR --scores=vim --fresh
jaxatr evaluate --workdir=DIR --outside=near=SOURCE,far=SOURCE
jaxatr evaluate --workdir=DIR --data=FOLDER_OR_TABLE_OR_ARCHIVE [--name=NAME]
jaxatr evaluate --workdir=DIR --workdir=DIR [--data=FOLDER_OR_TABLE_OR_ARCHIVE]
jaxatr evaluate --workdir=SURROGATE --methods=grad_cam,rise,lime
"""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr.cli import inputs


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_multi_string(
        "workdir", None, "The run's folder; repeat it for an ensemble.", required=True
    )
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string(
        "data",
        None,
        "Another set to measure instead of the test data: class folders, a table or an archive. "
        "Classes that the run does not know are unknown. It is recorded beside the run's own test.",
    )
    flags.DEFINE_string("name", None, "Name of that set. Default: its folder's or file's.")
    inputs.define_data()
    flags.DEFINE_string(
        "scores",
        None,
        "Open-set scores to measure, by name or module:NAME, separated by commas, or 'all'. "
        "Default: softmax, mls, cbc and the one that decides.",
    )
    flags.DEFINE_string(
        "outside",
        None,
        "Images of other data to measure as unknown, NAME=SOURCE,…; each source is a folder, an "
        "archive or a data set. Default: the run's open_set.outside.",
    )
    flags.DEFINE_string(
        "methods",
        None,
        "Explanations to compare a surrogate with, by name or module:NAME, separated by commas, "
        "or 'all'.",
    )
    flags.DEFINE_bool("fresh", False, "Discard the results of earlier evaluations of the run.")
    flags.DEFINE_bool("json", False, "Print the figures as JSON instead of the table.")


def main(arguments: Sequence[str]) -> None:
    """Evaluates, and prints the figures."""
    from jaxatr import reporting, runs, training  # late, to keep --help fast

    inputs.refuse(arguments)
    training.enable_compilation_cache()
    workdirs, options = flags.FLAGS.workdir, inputs.given("scores", "outside", "methods")
    another = inputs.given("data", "name")
    if "name" in another and "data" not in another:
        raise ValueError("--name needs --data, the set that it names")
    place = inputs.data_place()
    shared: dict[str, Any] = {"checkpoint": inputs.checkpoint(flags.FLAGS.checkpoint)}
    if len(workdirs) > 1:
        unused = {name: value for name, value in another.items() if name != "data"} | options
        if unused or flags.FLAGS.fresh:
            name = next(iter(unused), "fresh")
            raise ValueError(f"--{name} cannot be used with an ensemble: give one --workdir")
        result = runs.evaluate_ensemble(
            workdirs, **shared, data=another.get("data", place), where=place
        )
    else:
        shared |= {**another, "where": place} if another else {"data": place}
        result = runs.evaluate_run(
            workdirs[0], **shared, fresh=flags.FLAGS.fresh, progress=True, **options
        )
    if flags.FLAGS.json:
        print(json.dumps(result, indent=2))
        return
    print(reporting.results_text(workdirs[0], result))
    if len(workdirs) == 1 and (beside := reporting.sets_table(workdirs[0])):
        print(f"\n{beside}")
