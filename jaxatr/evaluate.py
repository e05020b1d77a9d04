"""Evaluates a trained run on its test data and prints the table.

python -m jaxatr.evaluate --workdir=DIR [--checkpoint=latest|best|STEP]
"""

import json

from absl import flags

from jaxatr import command, reporting, runs, training

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
_SOURCE = flags.DEFINE_string("source", None, "Where the data's folder or archive is now.")
_DATA_DIR = flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
_JSON = flags.DEFINE_bool("json", False, "Print the figures as JSON instead of the table.")


def main(arguments) -> None:
    """Evaluates and prints."""
    del arguments
    training.enable_compilation_cache()
    moved = {"source": _SOURCE.value, "data_dir": _DATA_DIR.value}
    result = runs.evaluate_run(
        _WORKDIR.value,
        checkpoint=command.checkpoint(_CHECKPOINT.value),
        data={name: value for name, value in moved.items() if value is not None},
    )
    print(json.dumps(result, indent=2) if _JSON.value else reporting.open_set_table(result))


if __name__ == "__main__":
    command.run(main)
