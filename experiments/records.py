"""Shared helpers of the table scripts: read recorded runs, format cells and Markdown."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxatr import metrics

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


def commits(results: Path) -> str:
    """Lists the commits of the recorded runs in a sentence."""
    runs = (json.loads(path.read_text()) for path in sorted(results.glob("*.json")))
    hashes = {run.get("record", {}).get("code", {}).get("commit", "unknown")[:12] for run in runs}
    return f"Commits of the runs: {', '.join(sorted(hashes)) or 'none'}."
