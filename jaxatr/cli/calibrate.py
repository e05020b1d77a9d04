"""Fits the threshold and probabilities of a finished run to a few labelled chips from the field.

jaxatr calibrate --workdir=DIR --chips=DATA [--score=NAME] [--tpr=0.95] [--per_class]
jaxatr calibrate --workdir=DIR --undo [--score=NAME]
"""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr.cli import inputs


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    inputs.define_chips("Labelled chips: a folder of class folders, a table or an archive.")
    flags.DEFINE_string("score", None, "The score to calibrate; default: the one that decides.")
    flags.DEFINE_float("tpr", None, "Share of known chips to accept; default: as configured.")
    flags.DEFINE_bool("per_class", False, "Fit a threshold per class; default: as configured.")
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_bool("undo", False, "Remove the calibration.")
    flags.DEFINE_bool("json", False, "Print the figures as JSON.")


def main(arguments: Sequence[str]) -> None:
    """Calibrates a run or removes its calibration, and prints the figures before and after."""
    from jaxatr import runs, training  # late, to keep --help fast

    inputs.refuse(arguments)
    values = flags.FLAGS
    options: dict[str, Any] = inputs.given("score") | {
        "checkpoint": inputs.checkpoint(values.checkpoint)
    }
    if values.undo == (values.chips is not None):
        raise ValueError("wanted either --chips=DATA or --undo")
    if values.undo:
        inputs.check_unused("tpr", "per_class", "json", by="undo")
    training.enable_compilation_cache()
    if values.undo:
        print(f"removed: {runs.undo_calibration(values.workdir, **options)}")
        return
    options |= inputs.given("tpr", "per_class")
    inputs.say(f"predicting the chips of {values.chips}")
    result = runs.calibrate_run(values.workdir, values.chips, **options)
    print(json.dumps(result, indent=2) if values.json else text(result))


def text(result: dict[str, Any]) -> str:
    """Formats the result of :func:`jaxatr.runs.calibrate_run`."""
    from jaxatr import reporting

    header = ["", "threshold", "guarantee", "accepted", "temperature", "calibration error"]
    rows = []
    for when in ("before", "after"):
        row = result[when]
        threshold = "-" if row["threshold"] is None else f"{row['threshold']:.6g}"
        shares = [
            "-" if row[name] is None else reporting.percent(row[name])
            for name in ("guarantee", "accepted", "calibration_error")
        ]
        rows.append([when, threshold, *shares[:2], f"{row['temperature']:.3g}", shares[2]])
    counts = ", ".join(f"{name} {count}" for name, count in result["chips"].items())
    lines = [
        f"score: {result['score']}; chips: {counts}",
        reporting.text_table(header, rows),
        "guarantee: of known chips like those it was fitted to, at least this share is accepted in "
        "the mean; -: no guarantee",
        "accepted: share of these chips; after: of each chip by a threshold fitted to the others",
    ]
    if result["after"]["threshold"] is None:
        lines.append("threshold -: one for each class, or none, so that everything is accepted")
    return "\n".join([*lines, f"saved in {result['path']}; jaxatr calibrate --undo removes it"])
