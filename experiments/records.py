"""Shared helpers of the table scripts: read recorded runs, format cells and Markdown."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxatr import metrics

if TYPE_CHECKING:
    from experiments.named_runs import Run

NOT_RUN = "not run"


def recorded(results: Path, name: str) -> dict[str, Any] | None:
    """Reads the result of a named run; returns None if it was not run."""
    path = results / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def cell(values: Sequence[float], spec: str = ".1f") -> str:
    """Formats the mean, the standard deviation and the number of recorded runs."""
    return f"{format(metrics.summarize(values), spec)} ({len(values)})" if values else NOT_RUN


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Formats a Markdown table; returns its lines."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def other_settings(runs: Iterable["Run"], results: Path) -> list[str]:
    """Names the runs that were recorded with other overrides than the present ones.

    Returns:
      Lines of Markdown, and an empty one; no lines if all have the present overrides.
    """
    fields: dict[str, list[str]] = {}
    for run in runs:
        if (result := recorded(results, run.name)) and (changed := run.changed(result)):
            fields.setdefault(", ".join(changed), []).append(run.name)
    listed = "; ".join(f"{', '.join(names)} ({own})" for own, names in fields.items())
    text = f"Recorded with other settings than the present ones: {listed}."
    return [*textwrap.wrap(text, 100, break_on_hyphens=False), ""] if fields else []


def commits(results: Path) -> str:
    """Lists the commits of the recorded runs in a sentence."""
    runs = (json.loads(path.read_text()) for path in sorted(results.glob("*.json")))
    hashes = {run.get("record", {}).get("code", {}).get("commit", "unknown")[:12] for run in runs}
    return f"Commits of the runs: {', '.join(sorted(hashes)) or 'none'}."
