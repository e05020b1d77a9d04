"""Helpers of the table makers: recorded runs in, cells and Markdown out."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxatr import metrics

NOT_RUN = "not run"


def recorded(results: Path, name: str) -> dict[str, Any] | None:
    """Returns the result of a named run, ``None`` where it was not run."""
    path = results / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def cell(values: Sequence[float], spec: str = ".1f") -> str:
    """Returns mean and deviation of the recorded runs, and how many they are."""
    return f"{format(metrics.summarize(values), spec)} ({len(values)})" if values else NOT_RUN


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Returns the lines of a Markdown table."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def commits(results: Path) -> str:
    """Returns a sentence with the commits that the recorded runs came from."""
    runs = (json.loads(path.read_text()) for path in sorted(results.glob("*.json")))
    found = {run.get("record", {}).get("code", {}).get("commit", "unknown")[:12] for run in runs}
    return f"Commits of the runs: {', '.join(sorted(found)) or 'none'}."
