"""The figures of several runs of one configuration: their mean and their spread."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxatr import files, forms, training
from jaxatr.forms import BOOLEAN, FIGURE, TEXT, TEXTS, Form
from jaxatr.metrics.summary import summarize
from jaxatr.reporting import notebook
from jaxatr.reporting.kind import Report, Section, report_of
from jaxatr.reporting.tables import percent, text_table

TOGETHER = "together"
"""Title of the runs' common decision among them."""


def summary_of(
    report: Report[Any],
    evaluations: Mapping[str, Mapping[str, Any]],
    together: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Summarises the evaluations of several runs.

    Args:
      report: the report of their kind.
      evaluations: content of ``evaluation.json`` of each run, by name.
      together: the evaluation of the runs' common decision; None if they have none.

    Returns:
      ``runs``, their names; ``shares``, whether the figures are shares; and ``figures``, by title:
      ``mean``, ``deviation`` (of the sample), ``runs`` (``count``), ``values`` of each run and, if
      measured, ``together``. A figure that some runs lack is of those that have it.
    """
    each = {name: report.figures_of(one) for name, one in evaluations.items()}
    joint = {} if together is None else report.figures_of(together)
    figures: dict[str, Any] = {}
    for title in dict.fromkeys(title for found in each.values() for title in found):
        values = {
            name: value for name, found in each.items() if (value := found.get(title)) is not None
        }
        if not values:
            continue
        measured = summarize(values.values())
        deviation = measured.deviation if measured.count > 1 else None
        figures[title] = {"mean": measured.mean, "deviation": deviation, "runs": measured.count}
        figures[title]["values"] = values
        if joint.get(title) is not None:
            figures[title][TOGETHER] = joint[title]
    return {"runs": list(evaluations), "shares": report.figures is not None, "figures": figures}


def results_text(workdir: str | os.PathLike, result: Mapping[str, Any]) -> str:
    """Formats what an evaluation of a run, or of a folder of several runs, returned.

    Raises:
      ValueError: there is no such run, or its kind has no valid report.
    """
    if training.read_repeats(workdir) is not None:
        return text(result)
    return report_of(workdir).text(result)


def shown(workdir: str | os.PathLike, result: Mapping[str, Any]) -> notebook.Results:
    """Returns an evaluation of a run, or of a folder of several runs, for notebooks as well.

    Args:
      workdir: the folder.
      result: the figures.

    Raises:
      ValueError: there is no such run, or its kind has no valid report.
    """
    if training.read_repeats(workdir) is not None:
        made = notebook.table(str(workdir), *table(result), notes(result))
        return notebook.Results(result, made)
    report = report_of(workdir)
    format_one = _number if report.figures is None else percent
    rows = [[title, format_one(one)] for title, one in report.figures_of(result).items()]
    below = [] if report.figures is None else ["figures in percent"]
    return notebook.Results(result, notebook.table(str(workdir), [], rows, below))


def table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Formats a summary as a header and rows: mean, deviation, and each run's figure."""
    show = percent if summary["shares"] else _number
    joint = any(TOGETHER in row for row in summary["figures"].values())
    header = ["figure", "mean", "sd", *([TOGETHER] if joint else []), *summary["runs"]]
    rows = []
    for title, row in summary["figures"].items():
        own = [show(row[name]) for name in ("mean", "deviation")]
        own += [show(row.get(TOGETHER))] if joint else []
        rows.append([title, *own, *(show(row["values"].get(name)) for name in summary["runs"])])
    return header, rows


def text(summary: Mapping[str, Any]) -> str:
    """Formats a summary as a table for a terminal."""
    header, rows = table(summary)
    return "\n".join([text_table(header, rows), *notes(summary)])


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Returns lines about a summary's table."""
    unit = "figures in percent; " if summary["shares"] else ""
    lines = [f"{unit}sd: standard deviation of the runs"]
    if "decision" in summary:
        lines.append(summary["decision"])
    return lines


def read(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads the summary in a folder of several runs.

    Raises:
      ValueError: the runs are not evaluated yet, one has another evaluation since then, or the
        file is damaged.
    """
    path = Path(folder) / training.SUMMARY
    if not path.is_file():
        raise ValueError(
            f"{folder}: its runs are not evaluated yet: jaxatr evaluate --workdir={folder}"
        )
    summary = files.read_fields(path)
    forms.check(summary, _FORM, path)
    for name in summary["runs"]:
        run = Path(folder) / name
        now = report_of(run).figures_of(training.load_evaluation(run))
        for title, row in summary["figures"].items():
            before, own = row["values"].get(name), now.get(title)
            if before is not None and own is not None and not math.isclose(before, own):
                raise ValueError(
                    f"{path} has another {title} of {name} than its {training.EVALUATION}, which "
                    f"is of another evaluation: jaxatr evaluate --workdir={folder} measures anew"
                )
    return summary


_FORM: Form = {
    "runs": TEXTS,
    "shares": BOOLEAN,
    "decision": TEXT,
    "figures": {
        "*": {
            **dict.fromkeys(("mean", "deviation", TOGETHER), FIGURE),
            "values": {"*": FIGURE},
        }
    },
}


def section(summaries: Mapping[str, Mapping[str, Any]]) -> Section | None:
    """Shows the mean and the spread of each folder's runs.

    Args:
      summaries: the folders' summaries by their names on the page.
    """
    tables = []
    for name, summary in summaries.items():
        header, rows = table(summary)
        lines = [
            {"title": first, "cells": [{"text": one, "best": False} for one in rest]}
            for first, *rest in rows
        ]
        columns = dict(enumerate(header[1:]))
        made = {"name": name, "rows": lines, "columns": columns, "notes": notes(summary)}
        tables.append(made)
    return Section("repeats", "Repeats", {"tables": tables}) if tables else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
