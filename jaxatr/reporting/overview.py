"""Sections of a report that are tables: what was run, and how well it does."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxatr import openset
from jaxatr.reporting.recorded import RecordedRun
from jaxatr.reporting.surrogates import AnyRun
from jaxatr.reporting.tables import COLUMNS, percent, score_title

_LOWER_IS_BETTER = ("fpr_at_tpr",)
_PARTS = ("train", "validation", "test")


class Section(NamedTuple):
    """A part of the page.

    Attributes:
      key: its anchor, and the name of its template.
      title: its heading.
      content: what the template shows.
    """

    key: str
    title: str
    content: dict[str, Any]


def settings(runs: Sequence[AnyRun]) -> Section:
    """What was run on what, every field of the configurations, and where the runs differ."""
    summaries = [_summary(run) for run in runs]
    fields = [_flat(run.config) for run in runs]
    return Section(
        "settings",
        "Settings and split",
        {"runs": runs, "summary": _rows(summaries), "configuration": _rows(fields)},
    )


def scores(runs: Sequence[RecordedRun]) -> Section | None:
    """The measures of each score over all test examples, the best of each measure marked."""
    if not runs:
        return None
    tables = [_score_table(run) for run in runs]
    shown = {column for table in tables for column in table["columns"]}
    return Section("scores", "Scores", {"tables": tables, "shown": shown})


def confusion(runs: Sequence[RecordedRun]) -> Section | None:
    """The known classes among each other, before anything is rejected."""
    from sklearn.metrics import confusion_matrix  # takes a second, and a training has no use for it

    matrices = []
    for run in runs:
        known = run.labels != openset.UNKNOWN
        if known.any():
            counts = confusion_matrix(
                run.labels[known], run.predicted[known], labels=range(len(run.classes))
            )
            matrices.append({"run": run, "names": run.classes, "counts": counts.tolist()})
    if not matrices:
        return None
    return Section("confusion", "Confusion between known classes", {"matrices": matrices})


def _summary(run: AnyRun) -> dict[str, str]:
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
        "known classes": ", ".join(evaluation["known"]),
        "unknown classes": ", ".join(evaluation["unknown"]) or "none",
        "examples": ", ".join(f"{part} {examples[part]}" for part in _PARTS if part in examples),
        "images left out": str(len(record["skipped"])) if "skipped" in record else "–",
        "chips": " × ".join(map(str, record.get("image_shape", ())))
        + f" {record.get('image_dtype', '')}",
        "checkpoint": f"{checkpoint.get('which', '–')}, step {checkpoint.get('step', '–')}",
        **_SUMMARIES[evaluation["task"]](run),
        "device": " × ".join(str(record.get("device", {}).get(f, "–")) for f in ("count", "kind")),
        "commit": commit,
        "started": record.get("started", "–"),
        "versions": ", ".join(f"{name} {v}" for name, v in record.get("versions", {}).items()),
    }


def _open_set(run: AnyRun) -> dict[str, str]:
    """Returns where it rejects."""
    gamma, fitted = run.evaluation["gamma"], run.evaluation.get("fitted_gamma")
    return {
        "fixed γ": "–" if gamma is None else f"{gamma:g}",
        "fitted γ": "–"
        if fitted is None
        else f"{fitted:.6g}, accepts {run.evaluation['tpr']:.0%} of the validation part",
    }


def _surrogate(run: AnyRun) -> dict[str, str]:
    """Returns what a surrogate explains, and how its loss was weighted."""
    target, fields = run.evaluation["target"], run.config["distillation"]
    return {
        "target": f"{target.get('workdir', '–')}, step {target.get('step', '–')}",
        "target's network": f"{target.get('backbone', '–')}, width {target.get('width', '–')}",
        "training": "end to end" if fields["end_to_end"] else "student, then explanation network",
        "scorer of the masked image": fields["scorer"],
        "λ": f"{fields['l1_weight']:g}, of the {fields['l1']} over pixels",
        "RISE's masks": str(fields["rise_samples"]),
        "LIME's samples": str(fields["lime_samples"]),
    }


def _embedding(run: AnyRun) -> dict[str, str]:
    """Returns what an embedding was trained by, and the distance that was fitted."""
    record, loss = run.record, run.config["embedding"]["loss"]
    members: dict[str, list[str]] = {}
    for name, coarse in zip(run.evaluation["known"], record["coarse"], strict=True):
        members.setdefault(coarse, []).append(name)
    groups = "; ".join(f"{coarse}: {', '.join(names)}" for coarse, names in members.items())
    row, tpr = run.evaluation["groups"]["all"]["scores"]["nearest"], run.evaluation["tpr"]
    fitted = row.get("fitted_threshold")
    return {
        "coarse classes": f"{record['hierarchy']} ({groups})",
        "loss": loss,
        "selection": run.config["mining"]["method"] if loss == "quadruplet" else "within the batch",
        "fitted distance": "–"
        if fitted is None
        else f"{-fitted:.6g}, accepts {tpr:.0%} of the validation part",
    }


_SUMMARIES = {
    "open_set": _open_set,
    "embedding": lambda run: _embedding(run) | _open_set(run),
    "distillation": _surrogate,
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


def _score_table(run: RecordedRun) -> dict[str, Any]:
    """Returns the table of what was measured; a sole score is not marked as the best."""
    group, best = run.evaluation["groups"]["all"], {}
    for column in COLUMNS:
        values = [row[column] for row in run.measured.values() if column in row]
        if values:
            best[column] = min(values) if column in _LOWER_IS_BETTER else max(values)
    rows = []
    for name, row in run.measured.items():
        cells = [
            {
                "text": percent(row.get(column)),
                "best": len(run.measured) > 1 and column in row and row[column] == best[column],
            }
            for column in best
        ]
        rows.append({"title": score_title(name), "cells": cells})
    columns = {column: COLUMNS[column] for column in best}
    return {"run": run, "group": group, "rows": rows, "columns": columns}
