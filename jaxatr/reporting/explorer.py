"""The report's section with an adjustable γ: its initial content, and its data.

The browser computes accuracy, false alarms, the confusion matrix and the mistakes from the data.
"""

import base64
import math
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxatr import openset
from jaxatr.extras import extra
from jaxatr.reporting import axes, charts, score_record
from jaxatr.reporting.kind import Numbered, Section
from jaxatr.reporting.recorded_run import RecordedRun
from jaxatr.reporting.sprite import Sprite
from jaxatr.reporting.tables import counts_training
from jaxatr.typing import Int

_BINS = 48
_CBC = openset.gamma_rule(0.5).score.name  # only its γ is a probability
_SHEETS = {
    "misclassified": "Known, accepted as the wrong class",
    "accepted": "Unknown, accepted as known (false alarms)",
    "rejected": "Known, rejected",
}


def explorer(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Makes the section: for each run, the scores' histograms, γ and the figures at that γ."""
    panels = [_panel(number, run) for number, run in runs]
    sheets = [(kind, _SHEETS[kind]) for kind in score_record.MISTAKES]
    title = "Choose the distance" if all(run.by_distance for _, run in runs) else "Choose γ"
    return Section("explorer", title, {"panels": panels, "sheets": sheets})


def decisions(
    run: RecordedRun, score: str, threshold: float
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, "c c"]]:
    """Decides at a threshold.

    Returns:
      The decision on each test example, and the confusion matrix with "unknown" last.
    """
    metrics = extra("sklearn.metrics", "report", "a report")  # takes a second to import

    decided = np.where(run.scores[score] >= threshold, run.predictions[score], openset.UNKNOWN)
    labels = [*range(len(run.classes)), openset.UNKNOWN]
    return decided, metrics.confusion_matrix(run.labels, decided, labels=labels)


def _panel(number: int, run: RecordedRun) -> dict[str, Any]:
    chosen = run.first_score
    start = _thresholds(run, chosen)[0]
    threshold = start["threshold"]
    if threshold is None:  # γ of 0 or 1
        threshold = -math.inf if start["gamma"] == 0 else math.inf
    return {
        "number": number,
        "run": run,
        "chosen": chosen,
        "by_distance": run.shown(chosen).scale == "distance",
        "titles": {name: run.label(name) for name in run.scores},
        "histograms": {name: _histogram(number, run, name) for name in run.scores},
        "names": [*run.classes, "unknown"],
        "counts": decisions(run, chosen, threshold)[1].tolist(),
    }


def _thresholds(run: RecordedRun, name: str) -> list[dict[str, Any]]:
    """Lists the recorded thresholds, each with a text and its γ in the readers' unit."""
    row, scale = run.measured[name], run.shown(name).scale
    fixed, fitted = row.get("threshold"), row.get("fitted_threshold")
    listed = []
    if scale in ("log", "logit"):  # a γ of 0 or 1 has no finite threshold to record
        listed.append({"text": "fixed", "threshold": fixed, "gamma": run.evaluation["gamma"]})
    elif fixed is not None:
        listed.append({"text": "fixed", "threshold": fixed, "gamma": fixed})
    if (deciding := _deciding_threshold(run, name)) is not None:
        gamma = axes.to_gamma(scale, deciding)
        listed.insert(0, {"text": "decides", "threshold": deciding, "gamma": gamma})
    if fitted is not None and fitted != deciding:  # they differ in runs of earlier versions
        alone = " to the validation examples alone" * counts_training(run.evaluation)
        share = f"fitted{alone}, to accept {100 * run.evaluation['tpr']:g}%"
        gamma = axes.to_gamma(scale, fitted)
        listed.append({"text": share, "threshold": fitted, "gamma": gamma})
    if not listed:
        middle = float(np.median(run.scores[name]))
        gamma = axes.to_gamma(scale, middle)
        listed.append({"text": "median", "threshold": middle, "gamma": gamma})
    return listed


def _deciding_threshold(run: RecordedRun, name: str) -> float | None:
    """Returns the threshold at which a score decides, if all classes share a finite one."""
    if name != run.evaluation.get("decides"):
        return None
    thresholds = set(run.evaluation.get("decision", {}).get("thresholds", ()))
    return thresholds.pop() if len(thresholds) == 1 else None


def _axis(run: RecordedRun, name: str) -> axes.Axis:
    scale = run.shown(name).scale
    recorded = [row["threshold"] for row in _thresholds(run, name) if row["threshold"] is not None]
    marks = axes.to_axis(scale, np.array(recorded, np.float64))
    return axes.score_axis(scale, axes.to_axis(scale, run.scores[name]), marks.tolist())


def _histogram(number: int, run: RecordedRun, name: str) -> charts.Chart:
    across, scale = _axis(run, name), run.shown(name).scale
    values = np.clip(axes.to_axis(scale, run.scores[name]), across.low, across.high)
    edges = np.linspace(across.low, across.high, _BINS + 1)
    series, words = [], []
    for colour, part in enumerate(("known", "unknown")):
        chosen = (run.labels != openset.UNKNOWN) == (part == "known")
        if not chosen.any():
            continue
        heights = np.histogram(values[chosen], edges)[0] / chosen.sum()
        outline = charts.steps(heights, edges)
        series.append(charts.Series(part, outline, str(chosen.sum()), colour, filled=True))
        words.append(f"{part}: {_quartiles(scale, run.scores[name][chosen])}.")
    down = axes.percent(
        "share of known or unknown", 0.0, 1.05 * max(one.points[:, 1].max() for one in series)
    )
    title = f"Scores by {run.shown(name).title}"
    words.append("The outermost bars include all values beyond them.")
    return charts.chart(f"explorer-{number}-{name}", title, " ".join(words), across, down, series)


def _quartiles(scale: openset.Scale, scores: np.ndarray) -> str:
    low, middle, high = np.quantile(scores.astype(np.float64), [0.25, 0.5, 0.75])
    figures = [f"{axes.to_gamma(scale, float(value)):.6g}" for value in (low, middle, high)]
    if scale == "distance":
        figures.reverse()
    return f"a quarter below {figures[0]}, half below {figures[1]}, a quarter above {figures[2]}"


def script_data(run: RecordedRun, sprite: Sprite) -> dict[str, Any]:
    """Collects the data for the page's script. Scores are encoded without loss."""
    mistakes = {
        name: {
            kind: [int(row) for row in rows if int(row) in run.thumbnails]
            for kind, rows in score_record.confident_mistakes(
                run.labels, run.predictions[name], score
            ).items()
        }
        for name, score in run.scores.items()
    }
    return {
        "classes": run.classes,
        "takes": f"{run.takes}...",
        "labels": run.labels.tolist(),
        "predicted": run.predicted.tolist(),
        "scores": {name: _score_data(run, name) for name in run.scores},
        "mistakes": mistakes,
        "thumbnails": {
            row: {
                "name": thumbnail.name,
                "seen": "" if run.ranges is None else f"{run.ranges[row]} m",
                "at": sprite.at[row],
            }
            for row, thumbnail in run.thumbnails.items()
        },
    }


def _command(run: RecordedRun, name: str) -> dict[str, str]:
    """Makes the command that predicts by a score at a threshold.

    Returns:
      ``flags``: the command up to the threshold's value; ``units`` of the value: ``"gamma"``,
      ``"distance"`` or ``"score"``; and ``reason``: why there is no such command, or empty.
    """
    flags = f"jaxatr predict --workdir={shlex.quote(run.workdir)}"
    if run.evaluation.get("task") == "embedding":
        return {"flags": f"{flags} --max_distance=", "units": "distance", "reason": ""}
    title, reason = run.shown(name).title, ""
    if name not in openset.SCORES:
        reason = f"For predict, name {title} by its module: --score=MODULE:NAME."
    elif openset.SCORES[name].training is not None:
        reason = f"predict cannot decide by {title}, which needs a network of its own."
    elif run.config.get("loss", {}).get("open") == "none" and name == _CBC:
        reason = f"predict cannot decide by {title}: the run trains no binary classifiers."
    units = "gamma" if name == _CBC else "score"
    return {"flags": f"{flags} --score={name} --gamma=", "units": units, "reason": reason}


def _score_data(run: RecordedRun, name: str) -> dict[str, Any]:
    across, values = _axis(run, name), run.scores[name]
    single = values.dtype == np.float32
    predicted = run.predictions[name]
    own = {} if np.array_equal(predicted, run.predicted) else {"predicted": predicted.tolist()}
    return own | {
        "command": _command(run, name),
        "scale": run.shown(name).scale,
        "low": across.low,
        "high": across.high,
        "thresholds": _thresholds(run, name),
        "single": single,
        "values": base64.b64encode(values.astype("<f4" if single else "<f8").tobytes()).decode(),
    }
