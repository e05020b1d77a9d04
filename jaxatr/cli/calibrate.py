"""Fits the threshold and probabilities of a finished run to chips from the field.

jaxatr calibrate --workdir=DIR --chips=DATA [--score=NAME] [--tpr=0.95] [--per_class]
jaxatr calibrate --workdir=DIR --unlabelled=DATA [--score=NAME] [--tpr=0.95]
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
    flags.DEFINE_string(
        "unlabelled",
        None,
        "Chips without labels, of known and unknown classes: a folder, a table or an archive.",
    )
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
    if values.undo + (values.chips is not None) + (values.unlabelled is not None) != 1:
        raise ValueError("wanted one of --chips=DATA, --unlabelled=DATA and --undo")
    if values.undo:
        inputs.check_unused("tpr", "per_class", "json", by="undo")
    training.enable_compilation_cache()
    if values.undo:
        print(f"removed: {runs.undo_calibration(values.workdir, **options)}")
        return
    options |= inputs.given("tpr", "per_class")
    inputs.say(f"predicting the chips of {values.chips or values.unlabelled}")
    if values.unlabelled is None:
        result = runs.calibrate_run(values.workdir, values.chips, **options)
        described = text(result)
    else:
        result = runs.shift_run(values.workdir, values.unlabelled, **options)
        described = text_of_shift(result)
    print(json.dumps(result, indent=2) if values.json else described)


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


def text_of_shift(result: dict[str, Any]) -> str:
    """Formats the result of :func:`jaxatr.runs.shift_run`."""
    from jaxatr import reporting

    rows = []
    for when in ("before", "after"):
        threshold = result[when]["threshold"]
        shown = "-" if threshold is None else f"{threshold:.6g}"
        rows.append([when, shown, reporting.percent(result[when]["accepted"])])
    lines = [
        f"score: {result['score']}; {result['chips']} chips without labels, of which about "
        f"{result['unknown']:.0%} seem to be unknown",
        reporting.text_table(["", "threshold", "accepted"], rows),
        "accepted: share of these chips, known and unknown",
    ]
    if result["unknown"]:
        lines.append(f"about {result['unknown_accepted']:.0%} of the unknown ones are accepted")
    if not result["tested"]:
        lines.append(
            "without trials (open_set.trials), nothing says whether the score tells unknown chips "
            "from known ones: those that score alike count as known"
        )
    lines.append("these are estimates without a guarantee; labelled chips (--chips) give one")
    return "\n".join([*lines, f"saved in {result['path']}; jaxatr calibrate --undo removes it"])
