"""Sections of a report with tables: settings, scores and confusion."""

from collections.abc import Sequence
from typing import Any

from jaxatr import openset
from jaxatr.extras import extra
from jaxatr.reporting import recorded_sets
from jaxatr.reporting.kind import Numbered, Recorded, Section
from jaxatr.reporting.recorded_run import RecordedRun
from jaxatr.reporting.tables import COLUMNS, FURTHER, percent
from jaxatr.training import OWN_TEST

_LOWER_IS_BETTER = ("fpr_at_tpr", "fpr_at_tpr_of_unknown")
_PARTS = ("train", "validation", "test")


def settings(runs: Sequence[Recorded], own: Sequence[dict[str, str]]) -> Section:
    """Lists data, split, device, versions and all fields, and marks where the runs differ.

    Args:
      runs: all runs of a page.
      own: additional rows by the kind of each run.
    """
    summaries = [_summary(run, rows) for run, rows in zip(runs, own, strict=True)]
    fields = [_flat(run.config) for run in runs]
    return Section(
        "settings",
        "Settings and split",
        {"runs": runs, "summary": _rows(summaries), "configuration": _rows(fields)},
    )


def scores(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Shows the measures of each score over all test examples, with the best values marked."""
    tables = [_score_table(run) for _, run in runs]
    shown = {column for table in tables for column in table["columns"]}
    return Section("scores", "Scores", {"tables": tables, "shown": shown})


def outside(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Shows the measures of each score with images of other data as unknown, by group."""
    tables = [
        {**_score_table(run, name), "name": name, "facts": facts}
        for _, run in runs
        for name, facts in run.evaluation.get("outside", {}).items()
    ]
    return Section("outside", "Images of other data", {"tables": tables}) if tables else None


def sets(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Shows each run's own test and other sets side by side, by the score that decides."""
    by_run: dict[str, dict[str, Any]] = {}
    for _, run in runs:
        title = run.evaluation["set"]["name"] if "set" in run.evaluation else OWN_TEST
        by_run.setdefault(run.workdir, {})[title] = run.evaluation
    tables = []
    for workdir, evaluations in by_run.items():
        if len(evaluations) > 1:
            header, rows, notes = recorded_sets.comparison(evaluations)
            lines = [
                {"title": first, "cells": [{"text": text, "best": False} for text in rest]}
                for first, *rest in rows
            ]
            columns = dict(enumerate(header[1:]))
            table = {"name": workdir, "rows": lines, "columns": columns, "notes": notes}
            tables.append(table)
    return Section("sets", "Sets", {"tables": tables}) if tables else None


def enrolled(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Shows the accuracy of enrolled classes, and that of the trained ones before and after."""
    tables = [
        {"run": run, **run.evaluation["enrolled"]}
        for _, run in runs
        if "enrolled" in run.evaluation
    ]
    return Section("enrolled", "Enrolled classes", {"tables": tables}) if tables else None


def confusion(runs: Sequence[Numbered[RecordedRun]]) -> Section | None:
    """Shows the confusion matrix of the known classes, before any rejection."""
    metrics = extra("sklearn.metrics", "report", "a report")  # takes a second to import

    matrices = []
    for _, run in runs:
        known = run.labels != openset.UNKNOWN
        if known.any():
            counts = metrics.confusion_matrix(
                run.labels[known], run.predicted[known], labels=range(len(run.classes))
            )
            matrices.append({"run": run, "names": run.classes, "counts": counts.tolist()})
    if not matrices:
        return None
    return Section("confusion", "Confusion between known classes", {"matrices": matrices})


def _summary(run: Recorded, own: dict[str, str]) -> dict[str, str]:
    evaluation, record = run.evaluation, run.record
    dataset, split = record.get("dataset", {}), record.get("split", {})
    checkpoint, code = evaluation.get("checkpoint", {}), record.get("code") or {}
    examples = record.get("examples", {})
    commit = code.get("commit", "–")[:12] + (", with changes" if code.get("dirty") else "")
    return {
        "data": f"{dataset.get('name', '–')}, version {dataset.get('version', '–')}",
        "data's fingerprint": dataset.get("fingerprint", "–")[:16],
        "split": f"{split.get('name', '–')}, version {split.get('version', '–')}, "
        f"seed {split.get('seed', '–')}",
        "known classes": ", ".join(evaluation.get("known", ())) or "–",
        "unknown classes": ", ".join(evaluation.get("unknown", ())) or "none",
        "examples": ", ".join(f"{part} {examples[part]}" for part in _PARTS if part in examples),
        "images left out": str(len(record["skipped"])) if "skipped" in record else "–",
        "chips": " × ".join(map(str, record.get("image_shape", ())))
        + f" {record.get('image_dtype', '')}",
        "checkpoint": f"{checkpoint.get('which', '–')}, step {checkpoint.get('step', '–')}",
        **own,
        "device": " × ".join(str(record.get("device", {}).get(f, "–")) for f in ("count", "kind")),
        "commit": commit,
        "started": record.get("started", "–"),
        "versions": ", ".join(f"{name} {v}" for name, v in record.get("versions", {}).items()),
    }


def _flat(fields: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = "" if value in ({}, [], ()) else str(value)
    return flat


def _rows(columns: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, [column.get(name, "–") for column in columns]) for name in names]
    return [
        {"name": name, "values": values, "differs": len(set(values)) > 1} for name, values in rows
    ]


def _score_table(run: RecordedRun, name: str = "all") -> dict[str, Any]:
    """Makes the table of a group's measures; the best are marked if there are several scores."""
    group, best = run.evaluation["groups"][name], {}
    measured, titles = group["scores"], COLUMNS | FURTHER
    for column in titles:
        values = [row[column] for row in measured.values() if column in row]
        if values:
            best[column] = min(values) if column in _LOWER_IS_BETTER else max(values)
    rows = []
    for score, row in measured.items():
        cells = [
            {
                "text": percent(row.get(column)),
                "best": len(measured) > 1 and column in row and row[column] == best[column],
            }
            for column in best
        ]
        rows.append({"title": run.label(score), "cells": cells})
    columns = {column: titles[column] for column in best}
    return {"run": run, "group": group, "rows": rows, "columns": columns}


def thresholds(run: RecordedRun) -> dict[str, str]:
    """Lists the thresholds of an open-set run, for the table of settings."""
    gamma, fitted = run.evaluation["gamma"], run.evaluation.get("fitted_gamma")
    return {
        "fixed γ": "–" if gamma is None else f"{gamma:g}",
        "fitted γ": "–"
        if fitted is None
        else f"{fitted:.6g}, to accept {100 * run.evaluation['tpr']:g}% of the known examples",
    }
