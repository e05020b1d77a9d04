"""Sections of a report with charts of recorded figures."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxatr import openset
from jaxatr.reporting import axes
from jaxatr.reporting.charts import COLOURS, DASHES, Chart, Series, chart
from jaxatr.reporting.curves import rate_curve
from jaxatr.reporting.kind import Numbered, Recorded, Section
from jaxatr.reporting.recorded_run import RecordedRun
from jaxatr.reporting.tables import percent
from jaxatr.typing import Float

_FEW = 0.05  # share of accepted unknown examples at which descriptions give a curve's value
# Lines of a chart that can be read; of more, only the deciding scores are shown at first.
_MOST_LINES = 12
_TRAINING = {  # recorded metric to its chart's title and axis label; all but the loss are shares
    "loss": ("Loss", "loss"),
    "closed_accuracy": ("Closed-set accuracy", "examples right"),
    "fine_accuracy": ("Accuracy of the fine classes", "references right"),
    "recall_at_1": ("Recall@1", "queries right"),
    "map_at_r": ("MAP@R", "mean average precision"),
    "valid": ("References with a quadruplet", "references"),
    "agreement": ("Student and target agree", "examples"),
    "insertion": ("Insertion", "mean area"),
    "deletion": ("Deletion", "mean area"),
    "mean_intensity": ("Mean intensity", "of the maps"),
}


def curves(numbered: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Draws ROC and OSCR curves of every run and score, if there are unknown examples."""
    runs = [run for _, run in numbered]
    if not any("auroc" in row for run in runs for row in run.measured.values()):
        return None
    charts = [
        _rate_chart(runs, "roc", "ROC", "known accepted", "auroc"),
        _rate_chart(runs, "oscr", "OSCR", "known accepted and right", "oscr"),
    ]
    titles = {name: run.shown(name).title for run in runs for name in run.scores}
    groups = titles if len(titles) > 1 else {}
    shown = {run.evaluation.get("decides") for run in runs} & set(titles)
    if not shown or len(charts[0].lines) <= _MOST_LINES:
        shown = set(titles)
    content = {"charts": charts, "groups": groups, "shown": shown}
    return Section("curves", "ROC and OSCR curves", content)


def ranges(numbered: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Draws AUROC by range, if the test examples have several ranges."""
    runs = [run for _, run in numbered]
    rows = [
        (number, name, by_range)
        for number, run in enumerate(runs)
        for name in run.scores
        if len(by_range := _auroc_by_range(run, name)) > 1
    ]
    if not rows:
        return None
    seen = sorted({value for _, _, by_range in rows for value in by_range})
    lowest = min(min(by_range.values()) for _, _, by_range in rows)
    margin = 0.08 * (seen[-1] - seen[0])
    across = axes.Axis(
        "range (m)",
        seen[0] - margin,
        seen[-1] + margin,
        tuple((value, f"{value:g}") for value in seen),
    )
    series, words = [], []
    for number, name, by_range in rows:
        points = np.array(sorted(by_range.items()), np.float64)
        series.append(_series(runs, number, name, points, dotted=True))
        figures = ", ".join(f"{percent(area)} at {at:g} m" for at, area in sorted(by_range.items()))
        words.append(f"{series[-1].label}: {figures}.")
    down = axes.percent("AUROC", min(0.5, np.floor(10 * lowest) / 10))
    drawn = chart("ranges-auroc", "AUROC by range (%)", " ".join(words), across, down, series)
    table = [
        (one.label, [percent(by_range.get(at)) for at in seen])
        for one, (_, _, by_range) in zip(series, rows, strict=True)
    ]
    content = {"chart": drawn, "ranges": [f"{at:g}" for at in seen], "table": table}
    return Section("ranges", "AUROC by range", content)


def training(runs: Sequence[Recorded]) -> Section | None:
    """Draws the loss and other metrics over the steps, in training and on the validation part."""
    charts = [_training_chart(runs, metric, *names) for metric, names in _TRAINING.items()]
    drawn = [one for one in charts if one is not None]
    return Section("training", "Training", {"charts": drawn}) if drawn else None


def _series(
    runs: Sequence[RecordedRun], number: int, name: str, points: np.ndarray, **more: Any
) -> Series:
    """Makes a line for a score: with one run, colours show scores; with several, runs."""
    run, alone = runs[number], len(runs) == 1
    title = run.shown(name).title
    place = list(run.scores).index(name)
    return Series(
        title if alone else f"{run.name}: {title}",
        points,
        colour=(place if alone else number) % COLOURS,
        dash=(place // COLOURS if alone else place) % DASHES,
        group=name,
        **more,
    )


def _rate_chart(
    runs: Sequence[RecordedRun], key: str, title: str, counted: str, measure: str
) -> Chart:
    series, words = [], []
    for number, run in enumerate(runs):
        known = run.labels != openset.UNKNOWN
        for name, score in run.scores.items():
            if measure not in run.measured[name]:
                continue
            counts = run.named[name] == run.labels if measure == "oscr" else known
            points = rate_curve(score[known], counts[known], score[~known])
            area = percent(run.measured[name][measure])
            series.append(_series(runs, number, name, points, figure=area))
            reached = points[points[:, 0] <= _FEW, 1].max()
            words.append(f"{series[-1].label}: area {area} %, {percent(reached)} % {counted}.")
    few = f"With {_FEW:.0%} of the unknown accepted: "
    return chart(
        f"curves-{key}",
        f"{title}, area in %",
        few + " ".join(words),
        axes.percent("unknown accepted"),
        axes.percent(counted),
        series,
    )


def _auroc_by_range(run: RecordedRun, name: str) -> dict[float, float]:
    areas = {}
    for group, measured in run.evaluation["groups"].items():
        matched = re.fullmatch(r"(\d+(?:\.\d+)?) m", group)
        if matched and "auroc" in (row := measured["scores"].get(name, {})):
            areas[float(matched[1])] = row["auroc"]
    return areas


def _training_chart(runs: Sequence[Recorded], metric: str, title: str, label: str) -> Chart | None:
    series, words = [], []
    for number, run in enumerate(runs):
        for dash, part in enumerate(("training", "validation")):
            points = _recorded_curve(run, metric, validation=part == "validation")
            if not len(points):
                continue
            name = part if len(runs) == 1 else f"{run.name}: {part}"
            colour = (dash if len(runs) == 1 else number) % COLOURS
            alone = len(points) == 1
            series.append(Series(name, points, colour=colour, dash=dash, dotted=alone))
            first, last = points[0, 1], points[-1, 1]
            words.append(f"{name}: {first:.3g} at first, {last:.3g} at the end.")
    if not series:
        return None
    values = np.concatenate([one.points[:, 1] for one in series])
    steps = axes.linear("step", 0.0, max(float(one.points[-1, 0]) for one in series))
    if metric == "loss" and values.min() > 0:
        down = axes.logarithmic(label, float(values.min()), float(values.max()))
        series = [_mapped(one, np.log10) for one in series]
    elif metric == "loss":
        down = axes.linear(label, float(values.min()), float(values.max()))
    else:
        down = axes.percent(label)
    return chart(f"training-{metric}", title, " ".join(words), steps, down, series)


def _recorded_curve(run: Recorded, metric: str, *, validation: bool) -> Float[np.ndarray, "p 2"]:
    points = [
        (record["step"], record[metric])
        for record in run.metrics
        if (record["phase"] == "evaluate") == validation and record.get(metric) is not None
    ]
    return np.array(points, np.float64).reshape(-1, 2)


def _mapped(series: Series, change: Callable[[np.ndarray], np.ndarray]) -> Series:
    points = np.stack([series.points[:, 0], change(series.points[:, 1])], axis=1)
    return series._replace(points=points)
