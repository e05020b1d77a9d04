"""Adds a class to a finished run by some chips of it, without a training; or trains on with it.

jaxatr enrol --workdir=DIR --source=FOLDER/NAME [--name=NAME] [--score=spatial_stage2]
jaxatr enrol --workdir=DIR --source=clusters.json --group=2 --name=NAME
jaxatr enrol --workdir=DIR --remove=NAME
jaxatr enrol --workdir=DIR --train=NEW_DIR [--epochs=5] [--learning_rate=0.001]
"""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxatr import reporting, runs, training
from jaxatr.cli import inputs

_WAYS = ("source", "remove", "train")
_OF = {"source": ("name", "group", "score"), "train": ("epochs", "learning_rate")}


def define_flags() -> None:
    """Defines the command's flags."""
    flags.DEFINE_string("workdir", None, "The run's folder.", required=True)
    flags.DEFINE_string(
        "source",
        None,
        "The chips of one class: a folder, whose name is the class's, an archive or a file; or "
        "the .json of `jaxatr cluster`.",
    )
    flags.DEFINE_string("name", None, "Of the class; default: the folder's name.")
    flags.DEFINE_integer("group", None, "Of the .json: the number of the group.")
    flags.DEFINE_string(
        "score", None, "Decide by this score from now on; default: by the one that decides."
    )
    flags.DEFINE_string("remove", None, "Take this class out again.")
    flags.DEFINE_string(
        "train",
        None,
        "Train a new run in this folder, from the run's weights, on its data and "
        "the enrolled chips.",
    )
    flags.DEFINE_integer("epochs", None, "Of --train; default: a quarter of the run's.", 1)
    flags.DEFINE_float(
        "learning_rate", None, "Of --train, of the optimiser; default: a tenth of the run's."
    )
    flags.DEFINE_string("checkpoint", "latest", "'latest', 'best' or a step.")
    flags.DEFINE_string("data_source", None, "Where the training data is now.")
    flags.DEFINE_string("data_dir", None, "Where prepared data is now.")
    flags.DEFINE_bool("json", False, "Print the figures as JSON.")
    flags.DEFINE_bool("progress", True, "Show a progress bar of --train.")


def main(arguments: Sequence[str]) -> None:
    """Enrols, removes or trains, and prints what came of it."""
    inputs.refuse(arguments)
    way = _way()
    training.enable_compilation_cache()
    values = flags.FLAGS
    if way == "remove":
        count = runs.remove_class(values.workdir, values.remove)
        print(f"removed: {values.remove}, {count} chips")
        return
    named = {"data_source": "source", "data_dir": "data_dir"}
    where = {named[flag]: value for flag, value in inputs.given(*named).items()}
    options: dict[str, Any] = inputs.given(*_OF[way]) | {
        "checkpoint": inputs.checkpoint(values.checkpoint),
        "where": where,
    }
    if way == "source":
        result = runs.enrol_run(values.workdir, values.source, **options)
        written = text(result)
    else:
        result = runs.train_enrolled(
            values.workdir, values.train, progress=values.progress, **options
        )
        written = table(result)
    print(json.dumps(result, indent=2) if values.json else written)


def _way() -> str:
    """Finds what is to be done; refuses flags of something else."""
    given = [name for name in _WAYS if flags.FLAGS[name].present]
    if len(given) != 1:
        raise ValueError("--source=FOLDER/NAME, --remove=NAME or --train=DIR: wanted one of them")
    for way, names in _OF.items():
        if way != given[0] and (strange := inputs.given(*names)):
            raise ValueError(f"--{next(iter(strange))} is of --{way}, which is not given")
    return given[0]


def text(result: dict[str, Any]) -> str:
    """Writes what :func:`jaxatr.runs.enrol_run` returns."""
    there = f", {result['left_out']} were there already" if result["left_out"] else ""
    name, count = result["name"], result["chips"]
    lines = [f"{name}: {result['added']} chips enrolled{there}; it has {count}"]
    if "promise" not in result:
        lines.append("the network knows the class: they are further examples of it")
    else:
        lines += _threshold(result)
    lines.append(f"decides: {result['score']}")
    lines.append(f"kept in {result['path']}; jaxatr enrol --remove={name} takes the class out")
    return "\n".join(lines)


def _threshold(result: dict[str, Any]) -> list[str]:
    if result["named"] is None:
        return ["threshold: the run's, as one chip says nothing of the class's own scores"]
    lines = [
        f"named right by the others of the class: {reporting.percent(result['named'])} % of them"
    ]
    if result["promise"] is None:
        why = "none of its chips is taken for it without itself"
        return [*lines, f"threshold: the run's, as {why}"]
    own, of_all = (
        "accepts everything" if value is None else f"{value:.6g}"
        for value in (result["threshold"], result["threshold_of_the_run"])
    )
    share = reporting.percent(result["promise"])
    lines.append(f"threshold: {own} (of the run's classes: {of_all})")
    name = result["name"]
    lines.append(f"of further chips like these that are taken for {name}, {share} % are accepted")
    return lines


def table(result: dict[str, Any]) -> str:
    """Writes what :func:`jaxatr.runs.train_enrolled` returns."""
    header = ["", "own classes right", "AUROC", "unknown accepted", *result["classes"]]
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
            "in percent of the test chips; right: named right and accepted",
            f"use it: jaxatr predict --workdir={result['workdir']} IMAGE...",
        ]
    )
