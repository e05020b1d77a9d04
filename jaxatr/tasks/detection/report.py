"""The report of a detector's results: tables, curves, the confusion, and pictures of mistakes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxatr.reporting import axes, plain
from jaxatr.reporting.charts import COLOURS, DASHES, Chart, Series, chart
from jaxatr.reporting.detector_card import COLUMNS as AVERAGES
from jaxatr.reporting.kind import Numbered, Report, Section
from jaxatr.reporting.tables import percent, text_table
from jaxatr.scenes import metrics
from jaxatr.tasks.detection.evaluation import NOTHING_NAME, of_any_class, scored, truths
from jaxatr.tasks.detection.recorded_detector import RecordedDetector, read

_SIZES = {"all": "all", "small": "below 32²", "medium": "to 96²", "large": "larger"}
_SHOWN = 0.8  # recall at which descriptions give a curve's precision


class Table(NamedTuple):
    """A table of figures.

    Attributes:
      title: its title.
      header: of the columns.
      rows: cells; the first is the row's title.
    """

    title: str
    header: list[str]
    rows: list[list[str]]


def tables(evaluation: Mapping[str, Any]) -> list[Table]:
    """Returns the tables of an evaluation: average precision, recall by class and by range."""
    rates = list(evaluation["recall"])
    total = [str(evaluation["targets"]), *(percent(evaluation["recall"][rate]) for rate in rates)]
    rows = [["all", "", *total]]
    for name, row in evaluation["classes"].items():
        figures = [percent(row["recall"][rate]) for rate in rates]
        rows.append([name, "yes" if row["known"] else "no", str(row["targets"]), *figures])
    header = ["class", "known", "targets", *(f"recall at {rate} a scene" for rate in rates)]
    found = [
        _averages(evaluation["average_precision"]),
        Table("Recall at false alarms per scene", header, rows),
    ]
    if alarms := evaluation.get("false_alarms"):  # runs of 0.3.0 and before have none
        units = list(next(iter(alarms.values())))
        rows = [
            [percent(float(share)), *(_or_never(row[unit]) for unit in units)]
            for share, row in alarms.items()
        ]
        header = ["recall", *(f"false alarms a {unit.replace('_', ' ')}" for unit in units)]
        found.append(Table("False alarms at a recall", header, rows))
    if evaluation.get("ranges"):
        rows = [
            [f"{metres} m", str(row["targets"]), percent(row["recall"])]
            for metres, row in evaluation["ranges"].items()
        ]
        found.append(Table("Recall at the fitted score", ["range", "targets", "recall"], rows))
    return found


def text(evaluation: Mapping[str, Any]) -> str:
    """Formats recall by class at rates of false alarms, and the decision's figures."""
    parts = [text_table(one.header, one.rows) for one in tables(evaluation)]
    return "\n\n".join([*parts, "\n".join(decision(evaluation))])


def _or_never(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.3g}"


def _averages(measured: Mapping[str, Any]) -> Table:
    """Returns COCO's measures of targets, of the known classes, and with γ."""
    named = measured.get("classes", {})
    found = {"targets": measured["targets"]} | ({"known classes": named} if named else {})
    if "open" in measured:
        found |= {"known, with γ": measured["open"]["known"]}
        found |= {"unknown, with γ": measured["open"]["unknown"]}
    rows = [[title, *(percent(row[name]) for name in AVERAGES)] for title, row in found.items()]
    for name, row in named.get("by_class", {}).items():
        rows.append([name, percent(row["ap"]), percent(row["ap50"]), *[""] * (len(AVERAGES) - 2)])
    return Table("Average precision", ["average precision", *AVERAGES.values()], rows)


def decision(evaluation: Mapping[str, Any]) -> list[str]:
    """Describes how targets are found and named at the fitted thresholds."""
    row = evaluation["decision"]
    lines = [
        f"targets from a score of {row['threshold']:.4g}: recall {percent(row['recall'])}, "
        f"{row['false_alarms']:.3g} false alarms a scene",
    ]
    if evaluation["known"]:
        lines.append(
            f"known from γ = {row['gamma']:.4g}: of the known targets found, "
            f"{percent(row['known_accepted'])} accepted, {percent(row['known_named_right'])} "
            f"accepted and named right; {percent(row['named_right'])} named right whatever γ"
        )
    if evaluation["known"] and row["unknown_found"]:
        lines.append(
            f"of {row['unknown_found']} unknown targets found, {row['open_set_errors']} are given "
            f"a known class ({percent(row['unknown_accepted'])})"
        )
    return lines


def figures(runs: Sequence[Numbered[RecordedDetector]]) -> Section:
    """Shows the tables of each run."""
    panels = [
        {"run": run, "tables": tables(run.evaluation), "lines": decision(run.evaluation)}
        for _, run in runs
    ]
    return Section("detection", "Detection", {"panels": panels})


def curves(runs: Sequence[Numbered[RecordedDetector]]) -> Section:
    """Draws precision against recall by size, whatever the class, and by class."""
    charts = [one for number, run in runs for one in _charts(number, run, several=len(runs) > 1)]
    return Section("precision", "Precision and recall", {"charts": charts})


def _charts(number: int, run: RecordedDetector, *, several: bool) -> list[Chart]:
    recorded, evaluation = run.arrays, run.evaluation
    known = evaluation["known"]
    every = scored(
        recorded["found_scene"],
        recorded["found_boxes"],
        recorded["found_scores"],
        recorded["found_open_logits"],
        evaluation["decision"]["gamma"],
    )
    there = recorded["true_scene"], recorded["true_boxes"], recorded["true_labels"]
    target = of_any_class(truths(*there, [0]))
    of_targets = metrics.precisions(every.of_targets, target, label=0)
    by_size = {title: of_targets[size] for size, title in _SIZES.items()}
    truth = truths(*there, range(len(known)))
    by_class = {
        name: metrics.precisions(every.named, truth, label=label)["all"]
        for label, name in enumerate(known)
    }
    own = f", {run.name}" if several else ""
    drawn = [
        (f"Targets of any class, by size in pixels{own}; AP50 in %", "size", by_size),
        (f"Known classes{own}; AP50 in %", "class", by_class),
    ]
    made = (_precision_chart(title, f"{key}-{number}", lines) for title, key, lines in drawn)
    return [one for one in made if one is not None]


def _precision_chart(title: str, key: str, lines: Mapping[str, np.ndarray | None]) -> Chart | None:
    series, words = [], []
    at = int(np.searchsorted(metrics.RECALLS, _SHOWN - 1e-9))
    for place, (name, precision) in enumerate(lines.items()):
        if precision is None:
            continue
        points = np.stack([metrics.RECALLS, precision], axis=1)
        colour, dash = place % COLOURS, place // COLOURS % DASHES
        area = percent(float(precision.mean()))
        series.append(Series(name, points, figure=area, colour=colour, dash=dash))
        words.append(f"{name}: AP50 {area} %, precision {percent(float(precision[at]))} %.")
    if not series:
        return None
    told = f"At a recall of {_SHOWN:.0%}: " + " ".join(words)
    down = axes.percent("precision")
    return chart(f"precision-{key}", title, told, axes.percent("recall"), down, series)


def confusion(runs: Sequence[Numbered[RecordedDetector]]) -> Section:
    """Shows what was there and what was found."""
    matrices = [
        {"run": run, "threshold": run.evaluation["decision"]["threshold"]}
        | run.evaluation["confusion"]
        for _, run in runs
    ]
    return Section("found", "What was found", {"matrices": matrices, "nothing": NOTHING_NAME})


def pictures(runs: Sequence[Numbered[RecordedDetector]]) -> Section | None:
    """Shows missed targets and false alarms."""
    sheets = []
    for number, run in runs:
        missed = [row for row in run.thumbnails if row >= 0]
        alarms = [row for row in run.thumbnails if row < 0]
        scores = run.arrays["found_scores"]
        kinds = {
            "missed": [(row, run.thumbnails[row].name, _size(run, row)) for row in missed],
            "alarms": [
                (row, f"score {scores[-1 - row]:.2f}", f"scene {_scene(run, row)}")
                for row in alarms
            ],
        }
        if missed or alarms:
            sheets.append({"number": number, "run": run, "kinds": kinds})
    return Section("mistakes", "Misses and false alarms", {"sheets": sheets}) if sheets else None


def _size(run: RecordedDetector, row: int) -> str:
    x0, y0, x1, y1 = run.arrays["true_boxes"][row]
    return f"{x1 - x0:.0f} × {y1 - y0:.0f} pixels"


def _scene(run: RecordedDetector, row: int) -> int:
    return int(run.arrays["test_id"][run.arrays["found_scene"][-1 - row]])


REPORT = Report(
    title="detection",
    read=read,
    introduce=lambda run: (
        f"{run.evaluation['targets']} targets in {run.evaluation['scenes']} scenes, step "
        f"{run.evaluation['checkpoint']['step']}."
    ),
    settings=lambda run: {
        "known classes": ", ".join(run.evaluation["known"]) or "none",
        "boxes": ", ".join(f"{part} {n}" for part, n in run.record.get("boxes", {}).items()),
        "least score": f"{run.evaluation['decision']['threshold']:.4g}",
    },
    sections=(
        (1000, figures),
        (1100, curves),
        (1200, confusion),
        (1300, pictures),
        (8500, plain.figures),
    ),
    text=text,
)
