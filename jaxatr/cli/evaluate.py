"""Evaluates a trained run on its test data and prints the table.

jaxatr evaluate --workdir=DIR [--checkpoint=latest|best|STEP] [--scores=all]
jaxatr evaluate --workdir=DIR --outside=near=SOURCE,far=SOURCE
jaxatr evaluate --workdir=SURROGATE --methods=grad_cam,rise,lime
"""

import json
from collections.abc import Sequence

from absl import flags

from jaxatr import reporting, runs, training
from jaxatr.cli import inputs


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("source", None, "Where the data's folder or archive is now.")
    flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
    flags.DEFINE_string("scores", None, "Open-set scores by name or module:NAME, or 'all'.")
    flags.DEFINE_string(
        "outside",
        None,
        "Groups of images of other data, NAME=SOURCE,…, each a folder, an archive or a data set; "
        "default: the run's open_set.outside.",
    )
    flags.DEFINE_string(
        "methods", None, "Explanations to compare a surrogate with, likewise, or 'all'."
    )
    flags.DEFINE_bool("json", False, "Print the figures as JSON instead of the table.")


def main(arguments: Sequence[str]) -> None:
    """Evaluates and prints."""
    inputs.refuse(arguments)
    training.enable_compilation_cache()
    result = runs.evaluate_run(
        flags.FLAGS.workdir,
        checkpoint=inputs.checkpoint(flags.FLAGS.checkpoint),
        data=inputs.given("source", "data_dir"),
        progress=True,
        **inputs.given("scores", "outside", "methods"),
    )
    print(
        json.dumps(result, indent=2)
        if flags.FLAGS.json
        else reporting.report_of(flags.FLAGS.workdir).text(result)
    )
