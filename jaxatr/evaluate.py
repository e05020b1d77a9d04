"""Evaluates a trained run on its test data and prints the table.

python -m jaxatr.evaluate --workdir=DIR [--checkpoint=latest|best|STEP] [--scores=all]
python -m jaxatr.evaluate --workdir=SURROGATE --methods=grad_cam,rise,lime
"""

import json

from absl import flags

from jaxatr import command, reporting, runs, training


def define_flags() -> None:
    """Defines the command's flags; only the command itself does, so that it can be imported."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("source", None, "Where the data's folder or archive is now.")
    flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
    flags.DEFINE_string("scores", None, "Open-set scores by name, or 'all'.")
    flags.DEFINE_string(
        "methods", "", "Explanations to compare a surrogate with, by name, or 'all'."
    )
    flags.DEFINE_bool("json", False, "Print the figures as JSON instead of the table.")


def main(arguments) -> None:
    """Evaluates and prints."""
    if arguments:
        raise ValueError(f"got {arguments[0]!r}, which is no flag: write --name=value")
    training.enable_compilation_cache()
    moved = {"source": flags.FLAGS.source, "data_dir": flags.FLAGS.data_dir}
    result = runs.evaluate_run(
        flags.FLAGS.workdir,
        checkpoint=command.checkpoint(flags.FLAGS.checkpoint),
        data={name: value for name, value in moved.items() if value is not None},
        scores=flags.FLAGS.scores,
        methods=flags.FLAGS.methods,
        progress=True,
    )
    print(
        json.dumps(result, indent=2)
        if flags.FLAGS.json
        else reporting.report_of(flags.FLAGS.workdir).text(result)
    )


if __name__ == "__main__":
    command.run(main, define_flags)
