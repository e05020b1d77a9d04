"""Adds a class to a finished run by a few chips, without training; or continues its training.

jaxatr enrol --workdir=DIR --chips=FOLDER/NAME [--name=NAME] [--score=spatial_stage2]
jaxatr enrol --workdir=DIR --chips=clusters.json --group=2 --name=NAME
jaxatr enrol --workdir=DIR --remove=NAME
jaxatr enrol --workdir=DIR --train=NEW_DIR [--epochs=5] [--learning_rate=0.001]
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from jaxatr.cli import inputs

_WAYS = ("chips", "remove", "train")
_OF = {"chips": ("name", "group", "score"), "train": ("epochs", "learning_rate")}


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    inputs.define_chips(
        "The chips of one class: a folder with the name of the class, an archive or a file; or "
        "the JSON file of `jaxatr cluster`."
    )
    flags.DEFINE_string("name", None, "Name of the class; default: the folder's name.")
    flags.DEFINE_integer("group", None, "Number of the group in the JSON file.")
    flags.DEFINE_string(
        "score",
        None,
        "The score that decides from now on; auto: the best on held-out known classes; default: "
        "the present one.",
    )
    flags.DEFINE_string("remove", None, "Remove this enrolled class.")
    flags.DEFINE_string(
        "train",
        None,
        "Train a new run in this folder, starting from the run's weights, on its data and the "
        "enrolled chips.",
    )
    flags.DEFINE_integer("epochs", None, "With --train; default: a quarter of the run's.", 1)
    flags.DEFINE_float(
        "learning_rate", None, "With --train; default: a tenth of the run's learning rate."
    )
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    inputs.define_data(former=False)  # there --source names chips
    flags.DEFINE_bool("json", False, "Print the figures as JSON.")
    flags.DEFINE_bool("progress", True, "With --train: show a progress bar.")


def main(arguments: Sequence[str]) -> None:
    """Enrols a class, removes one, or trains a new run; prints the result."""
    from jaxatr import runs, training  # late, to keep --help fast

    inputs.refuse(arguments)
    way = _way()
    training.enable_compilation_cache()
    values = flags.FLAGS
    if way == "remove":
        count = runs.remove_class(values.workdir, values.remove)
        print(f"removed: {values.remove}, {count} chips")
        print(_to_measure(values.workdir))
        return
    options: dict[str, Any] = inputs.given(*_OF[way]) | {
        "checkpoint": inputs.checkpoint(values.checkpoint),
        "where": inputs.data_place(),
    }
    if way == "chips":
        inputs.say(f"enrolling {values.chips}, and fitting the decision again")
        result = runs.enrol_run(values.workdir, values.chips, **options)
        formatted = text(result)
    else:
        result = runs.train_enrolled(
            values.workdir, values.train, progress=values.progress, **options
        )
        formatted = table(result)
    print(json.dumps(result, indent=2) if values.json else formatted)


def _way() -> str:
    """Returns the flag that selects the operation; checks that the other flags belong to it."""
    given = [name for name in _WAYS if flags.FLAGS[name].present]
    if len(given) != 1:
        raise ValueError("wanted one of --chips=FOLDER/NAME, --remove=NAME and --train=DIR")
    for way, names in _OF.items():
        if way != given[0] and (strange := inputs.given(*names)):
            raise ValueError(f"--{next(iter(strange))} needs --{way}")
    if given[0] == "remove":
        inputs.check_unused("checkpoint", "data_source", "data_dir", "json", by="remove")
    return given[0]


def text(result: dict[str, Any]) -> str:
    """Formats the result of :func:`jaxatr.runs.enrol_run`."""
    there = f", {result['left_out']} already enrolled" if result["left_out"] else ""
    name, count = result["name"], result["chips"]
    lines = [f"{name}: {result['added']} chips enrolled{there}; {count} in total"]
    if "promise" not in result:
        lines.append("the network was trained on this class: the chips are more examples of it")
    else:
        lines += _threshold(result)
    lines.append(f"decides: {result['score']}")
    folder = shlex.quote(str(Path(result["path"]).parent))
    undo = f"jaxatr enrol --workdir={folder} --remove={shlex.quote(name)}"
    lines.append(f"saved in {result['path']}; {undo} removes the class")
    return "\n".join([*lines, _to_measure(Path(result["path"]).parent)])


def _to_measure(workdir: str | Path) -> str:
    """Names the command that measures a run whose classes have changed."""
    return f"measure it: jaxatr evaluate --workdir={shlex.quote(str(workdir))}"


def _threshold(result: dict[str, Any]) -> list[str]:
    from jaxatr import reporting

    if result["named"] is None:
        return ["threshold: the run's, because one chip is not enough to fit the class's own"]
    share = reporting.percent(result["named"])
    lines = [f"chips classified correctly by the other chips of the class: {share} %"]
    if result["promise"] is None:
        why = "because no chip is classified as the class by the others"
        return [*lines, f"threshold: the run's, {why}"]
    of_class, of_all = (
        "accepts everything" if value is None else f"{value:.6g}"
        for value in (result["threshold"], result["threshold_of_the_run"])
    )
    share = reporting.percent(result["promise"])
    lines.append(f"threshold: {of_class} (for the run's classes: {of_all})")
    name = result["name"]
    lines.append(
        f"of similar chips that are classified as {name}, at least {share} % will be accepted"
    )
    return lines


def table(result: dict[str, Any]) -> str:
    """Formats the result of :func:`jaxatr.runs.train_enrolled`."""
    from jaxatr import reporting

    header = ["", "original classes right", "AUROC", "unknown accepted", *result["classes"]]
    rows = [
        [
            row["run"],
            reporting.percent(row.get("accuracy")),
            reporting.percent(row.get("auroc")),
            reporting.percent(row.get("unknown_accepted")),
            *(reporting.percent(row["classes"].get(name)) for name in result["classes"]),
        ]
        for row in result["rows"]
    ]
    return "\n".join(
        [
            reporting.text_table(header, rows),
            "in percent of the test chips; right: classified correctly and accepted",
            f"use it: jaxatr predict --workdir={shlex.quote(result['workdir'])} IMAGE...",
        ]
    )
