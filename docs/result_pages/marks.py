"""Rows of a chart from recorded values, legends, and the records of the benchmarks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from charts import OURS, PUBLISHED, Mark, Row, Section

from jaxatr import metrics

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "experiments" / "benchmarks" / "results"

BOTH = {PUBLISHED: "published", OURS: "jaxatr: mean, sd, runs"}
OWN = {OURS: "mean, sd, runs"}
SPAN = {OURS: "geometric mean, least to most"}

Figures = dict[str, tuple[Callable[[], list[Section]], dict[str, str]]]
"""By the name of the picture: the function that makes its sections, and its legend."""
Tables = dict[str, Callable[[], str]]
"""By the name in a page's mark: the function that makes the table."""


def ours(values: Sequence[float], spec: str = ".1f") -> tuple[list[Mark], str]:
    """Returns the marks and the text of our mean over runs; neither if there is no run."""
    if not values:
        return [], ""
    found = metrics.summarize(values)
    spread = (found.mean - found.deviation, found.mean + found.deviation)
    several = len(values) > 1
    mark = Mark(OURS, found.mean, spread if several else None, values if several else ())
    return [mark], format(found.mean, spec)


def beside(label: str, published: float | None, values: Sequence[float], spec=".1f") -> Row:
    """Returns a row with a published value and ours."""
    marks, text = ours(values, spec)
    if published is not None:
        marks = [Mark(PUBLISHED, published), *marks]
    return Row(label, marks, text or ("not run" if published is not None else ""))


def ranged(label: str, ratios: Sequence[float], kind: str = OURS) -> Row:
    """Returns a row with the geometric mean of ratios and a line from the least to the most."""
    mean = geometric_mean(ratios)
    return Row(label, [Mark(kind, mean, (min(ratios), max(ratios)))], f"{mean:.2f}")


def benchmark(name: str) -> dict[str, Any]:
    """Reads the record of a benchmark."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))
