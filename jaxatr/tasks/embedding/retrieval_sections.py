"""Report sections on retrieval."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxatr import openset
from jaxatr.reporting.kind import Numbered, Section
from jaxatr.reporting.tables import percent, text_table
from jaxatr.tasks.embedding.recorded_embedding import RecordedEmbedding, Searches

KINDS = ("new", "trained")
"""Retrieval is measured among new classes and among trained classes."""

RECALLS = ("recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8")
"""Names of the Recall@K metrics, ordered by K."""

_COLUMNS = {
    **{name: f"R@{name.removeprefix('recall_at_')}" for name in RECALLS},
    "map_at_r": "MAP@R",
    "nmi": "NMI",
}


def retrieval(runs: Sequence[Numbered[RecordedEmbedding]]) -> Section | None:
    """Shows Recall@K, MAP@R and NMI, with the best marked if runs searched the same images."""
    groups = [_group(kind, [run for _, run in runs]) for kind in KINDS]
    groups = [group for group in groups if group["rows"]]
    if not groups:
        return None
    content = {"groups": groups, "columns": list(_COLUMNS.values())}
    return Section("retrieval", "Retrieval", content)


def search_sheet(runs: Sequence[Numbered[RecordedEmbedding]]) -> Section | None:
    """Shows queries with their nearest neighbours, right and wrong."""
    sheets = [
        {"number": number, "run": run, "kinds": _kinds(run, run.searches)}
        for number, run in runs
        if run.searches is not None and len(run.searches.rows)
    ]
    return Section("searches", "Retrieval sheet", {"sheets": sheets}) if sheets else None


def retrieval_table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats retrieval metrics as a table, in percent.

    Args:
      measured: ``retrieval`` of an embedding run's ``evaluation.json``.
    """
    header = ["search among", "images", "classes", *(f"R@{name[10:]}" for name in RECALLS)]
    rows = [
        [
            f"{kind} classes",
            str(row["examples"]),
            str(row["classes"]),
            *(percent(row.get(name)) for name in (*RECALLS, "map_at_r", "nmi")),
        ]
        for kind, row in measured.items()
    ]
    notes = [
        f"{row['duplicates']} duplicate images of {kind} classes are left out"
        for kind, row in measured.items()
        if row["duplicates"]
    ]
    return "\n".join([text_table([*header, "MAP@R", "NMI"], rows), *notes])


def _group(kind: str, runs: Sequence[RecordedEmbedding]) -> dict[str, Any]:
    found = [(run, run.retrieval[kind]) for run in runs if kind in run.retrieval]
    tests = [(run.evaluation.get("dataset"), run.evaluation.get("split")) for run, _ in found]
    alike = len(found) > 1 and all(test == tests[0] for test in tests)
    rows = []
    for run, measured in found:
        cells = []
        for column in _COLUMNS:
            values = [other[column] for _, other in found if column in other]
            best = alike and column in measured and measured[column] == max(values)
            cells.append({"text": percent(measured.get(column)), "best": best})
        rows.append({"run": run, "measured": measured, "cells": cells})
    return {"kind": kind, "rows": rows, "alike": alike or len(found) < 2}


def _kinds(run: RecordedEmbedding, searches: Searches) -> dict[str, list[dict[str, Any]]]:
    """Groups the searches by whether the query's class is new or trained."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for query, neighbours, distances in zip(*searches, strict=True):
        name = run.thumbnails[int(query)].name
        kind = "new" if run.labels[query] == openset.UNKNOWN else "trained"
        others = [
            {
                "row": int(row),
                "name": run.thumbnails[int(row)].name,
                "right": run.thumbnails[int(row)].name == name,
                "distance": f"{distance:#.3g}".rstrip("."),
            }
            for row, distance in zip(neighbours, distances, strict=True)
        ]
        found[kind].append({"row": int(query), "name": name, "neighbours": others})
    return {kind: queries for kind, queries in found.items() if queries}
