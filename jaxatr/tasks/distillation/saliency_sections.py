"""Report sections on explanations: their measures and the saliency maps."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxatr.explain import method_title
from jaxatr.explain.measures import TITLES
from jaxatr.reporting.kind import Numbered, Section
from jaxatr.reporting.tables import percent, text_table
from jaxatr.tasks.distillation.recorded_surrogate import ExplainedChip, RecordedSurrogate

_LOWER_IS_BETTER = ("deletion",)
_NO_MERIT = ("mean_intensity",)  # neither low nor high is better: an empty map has the lowest


def methods(runs: Sequence[Numbered[RecordedSurrogate]]) -> Section | None:
    """Shows the measures of each method's maps, with the best of each measure marked."""
    tables = [_table(run) for _, run in runs]
    shown = {name for table in tables for name in table["columns"]}
    return Section("methods", "Explanations", {"tables": tables, "shown": shown})


def saliency_sheet(runs: Sequence[Numbered[RecordedSurrogate]]) -> Section | None:
    """Shows chips with the maps of every method side by side."""
    sheets = []
    for number, run in runs:
        kinds: dict[str, list[ExplainedChip]] = {}
        for one in run.sheet:
            kinds.setdefault(one.kind, []).append(one)
        sheets.append({"number": number, "run": run, "kinds": kinds})
    return Section("saliency", "Saliency maps", {"sheets": sheets})


def explanation_table(evaluation: Mapping[str, Any]) -> str:
    """Formats the metrics of a surrogate as a table, with accuracies in percent."""
    found = evaluation["explanation"]
    networks = [
        ["target", percent(found["target_accuracy"]), "-"],
        ["student", percent(found["student_accuracy"]), percent(found["agreement"])],
    ]
    shown = _measured(found["methods"])
    rows = [
        [method_title(name), *(f"{judged[measure]:.3f}" for measure in shown)]
        for name, judged in found["methods"].items()
    ]
    step = found["convention"][0]["pixels_per_step"]
    notes = [
        f"target: {evaluation['target'].get('workdir', '-')}",
        f"{found['examples']} test chips; insertion and deletion: {step} pixels per step, measured "
        "by the target's probability of its predicted class",
    ]
    tables = [
        text_table(["network", "accuracy", "agreement"], networks),
        text_table(["explanation", *shown.values()], rows),
    ]
    return "\n\n".join(tables) + "\n" + "\n".join(notes)


def _measured(methods: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Returns the titles of the measures that any method has, by name."""
    return {
        name: title
        for name, title in TITLES.items()
        if any(name in judged for judged in methods.values())
    }


def _table(run: RecordedSurrogate) -> dict[str, Any]:
    columns = _measured(run.methods)
    best = {}
    for name in columns.keys() - set(_NO_MERIT):
        values = [judged[name] for judged in run.methods.values()]
        best[name] = min(values) if name in _LOWER_IS_BETTER else max(values)
    rows = [
        {
            "title": method_title(method),
            "cells": [
                {
                    "text": f"{judged[name]:.3f}",
                    "best": len(run.methods) > 1 and judged[name] == best.get(name),
                }
                for name in columns
            ],
        }
        for method, judged in run.methods.items()
    ]
    found = run.evaluation["explanation"]
    accuracies = {
        name: percent(found[name]) for name in ("target_accuracy", "student_accuracy", "agreement")
    }
    step = found["convention"][0]["pixels_per_step"]
    return {
        "run": run,
        "columns": columns,
        "rows": rows,
        **accuracies,
        "examples": found["examples"],
        "step": step,
    }
