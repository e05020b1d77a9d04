"""The section about the decision: calibration of its probabilities, and risk by coverage."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxatr import metrics, openset
from jaxatr.reporting import axes
from jaxatr.reporting.charts import COLOURS, Chart, Series, chart
from jaxatr.reporting.kind import Numbered, Section
from jaxatr.reporting.recorded_run import RecordedRun
from jaxatr.reporting.tables import by_trials, guarantee_lines, percent
from jaxatr.typing import Float

_PROBABILITIES = {
    "class_probability": "Class probability of known examples",
    "known_probability": "Probability of being known, at even odds",
}


def decision(numbered: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Makes the section: each run's decision, reliability diagrams and risk-coverage curves."""
    runs = [run for _, run in numbered if _test(run)]
    if not runs:
        return None
    charts = [_diagram(runs, name, title) for name, title in _PROBABILITIES.items()]
    charts.append(_risk(runs))
    rows = [{"run": run, "cells": _cells(run)} for run in runs]
    content = {
        "charts": [one for one in charts if one is not None],
        "names": list(dict.fromkeys(name for row in rows for name in row["cells"])),
        "rows": rows,
        "tables": [{"run": run, "rows": found} for run in runs if (found := _candidates(run))],
    }
    return Section("decision", "The decision", content)


def _test(run: RecordedRun) -> dict[str, Any]:
    return run.evaluation.get("decision", {}).get("test", {})


def _cells(run: RecordedRun) -> dict[str, str]:
    """Lists the facts about a run's decision, name to text."""
    record, test = run.evaluation["decision"], _test(run)
    cells = {
        "score": run.shown(run.evaluation["decides"]).title,
        "chosen by": record["by"],
        "class from": record.get("class_from", "head"),
        "known accepted": percent(test.get("known_accepted")),
        "unknown accepted": percent(test.get("unknown_accepted")),
        "accuracy with “unknown”": percent(test.get("open_accuracy")),
        "AURC": percent(test.get("aurc")),
    }
    if lines := guarantee_lines(record):
        cells["threshold"] = "; ".join(one.removeprefix("its threshold is ") for one in lines)
    if record.get("probability"):
        cells["“known” is"] = record["probability"]
    for name, short in (("class_probability", "class"), ("known_probability", "known")):
        if name in test:
            cells[f"calibration error, {short}"] = percent(test[name]["error"])
        if "error_before" in test.get(name, {}):
            before = percent(test[name]["error_before"])
            cells[f"calibration error, {short}, before scaling"] = before
    return cells


def _candidates(run: RecordedRun) -> list[tuple[str, str, bool]]:
    """Lists the scores that were compared, best first: (title, mean AUROC or reason, chosen).

    An AUROC of classes that the network has seen is not shown, because it is no estimate.
    """
    compared = run.evaluation["decision"].get("candidates", {})
    measured = {name: row["auroc"] for name, row in compared.items() if "auroc" in row}
    refused = {name: row["refused"] for name, row in compared.items() if "refused" in row}
    if len(compared) < 2:
        return []
    chosen = run.evaluation["decides"]
    ordered = sorted(measured, key=lambda name: -measured[name])
    tested = by_trials(run.evaluation["decision"])
    rows = [
        (run.label(name), percent(measured[name]) if tested else str(place), name == chosen)
        for place, name in enumerate(ordered, 1)
    ]
    return rows + [(run.label(name), reason, False) for name, reason in refused.items()]


def _diagram(runs: Sequence[RecordedRun], name: str, title: str) -> Chart | None:
    ideal = Series("ideal", np.array([[0.0, 0.0], [1.0, 1.0]]), dash=1, colour=7)
    series, words = [ideal], []
    for number, run in enumerate(runs):
        if name not in _test(run):
            continue
        bins = np.array(_test(run)[name]["bins"], np.float64)
        error = percent(_test(run)[name]["error"])
        label = run.shown(run.evaluation["decides"]).title if len(runs) == 1 else run.name
        series.append(_line(label, bins[:, :2], number, error, dotted=True))
        words.append(f"{label}: expected calibration error {error} %.")
    if len(series) == 1:
        return None
    across, down = axes.percent("probability"), axes.percent("observed frequency")
    heading = f"{title}, error in %"
    return chart(f"decision-{name}", heading, " ".join(words), across, down, series)


def _risk(runs: Sequence[RecordedRun]) -> Chart:
    series, words = [], []
    for number, run in enumerate(runs):
        labels = run.decided["label"]
        kinds = [("all examples", run.decided["score"], run.decided["nearest"] == labels)]
        # The network's probabilities are of its own class, and of no enrolled one.
        trained = (labels != openset.UNKNOWN) & (labels < len(run.record["split"]["known"]))
        if trained.any():
            confidence, right = run.decided["probability"], run.decided["predicted"] == labels
            kinds.append(("known only, by class probability", confidence[trained], right[trained]))
        for dash, (kind, confidence, correct) in enumerate(kinds):
            risk = metrics.risk_coverage(confidence, correct)
            coverage = np.arange(1, len(risk) + 1) / len(risk)
            label = kind if len(runs) == 1 else f"{run.name}: {kind}"
            colour = dash if len(runs) == 1 else number
            area = percent(float(np.mean(risk)))
            points = np.stack([coverage, risk], axis=1)
            series.append(_line(label, points, colour, area, dash=dash))
            words.append(f"{label}: area {area} %, {percent(risk[-1])} % wrong at full coverage.")
    highest = max(float(one.points[:, 1].max()) for one in series)
    down = axes.percent("risk: share wrong", 0.0, max(highest, 0.01))
    across = axes.percent("coverage: most confident predictions")
    title = "Risk and coverage, area in %"
    return chart("decision-risk", title, " ".join(words), across, down, series)


def _line(
    label: str, points: Float[np.ndarray, "p 2"], colour: int, figure: str, **more: Any
) -> Series:
    return Series(label, points, figure, colour=colour % COLOURS, **more)
