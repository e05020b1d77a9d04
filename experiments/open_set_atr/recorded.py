"""Reads the recorded runs, and makes a table's cells of them."""

from collections.abc import Iterable

from experiments.open_set_atr.run import RESULTS, all_runs
from experiments.records import NOT_RUN, table
from jaxatr import metrics

RUNS = {run.name: run for run in all_runs()}
NAMES = {"softmax": "SoftMax", "mls": "MLS", "cbc": "CBC"}


def over_all(name: str, group: str = "all") -> dict | None:
    """Returns a run's evaluation over a group of its test data, by default all of it.

    ``None`` where the run was not carried out with the settings that it has today.
    """
    found = RUNS[name].result(RESULTS)
    return found and found["evaluation"]["groups"].get(group)


def figure(evaluation: dict, score: str, measure: str) -> float:
    """Returns one figure of an evaluation; the closed-set accuracy belongs to no score."""
    if measure == "closed_accuracy":
        return evaluation["closed_accuracy"]
    return evaluation["scores"][score][measure]


def summary(names: Iterable[str], score: str, measure: str) -> metrics.Summary | None:
    """Returns mean and standard deviation over runs, or ``None`` unless all of them were run."""
    values = [over_all(name) for name in names]
    if any(value is None for value in values):
        return None
    return metrics.summarize(figure(value, score, measure) for value in values if value)


def cell(found: metrics.Summary | None, spec: str = ".3f") -> str:
    """Returns a summary as a table's cell."""
    return NOT_RUN if found is None else format(found, spec)


def difference(found: metrics.Summary | None, published: float, spec: str = "+.3f") -> str:
    """Returns how far ours is above the published value."""
    return NOT_RUN if found is None else format(found.mean - published, spec)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(table(header, rows))


def percentages(names: Iterable[str], score: str, measure: str, group: str = "all") -> list[float]:
    """Returns a figure of those runs that are recorded with it."""
    found = (over_all(name, group) for name in names)
    return [
        100 * figure(run, score, measure)
        for run in found
        if run and (measure == "closed_accuracy" or score in run["scores"])
    ]


def some(names: Iterable[str], score: str, measure: str, group: str = "all") -> str:
    """Returns mean, deviation and number of those runs that are recorded with this figure."""
    values = percentages(names, score, measure, group)
    if not values:
        return NOT_RUN
    found = metrics.summarize(values)
    spread = f" ± {found.deviation:.1f}" if len(values) > 1 else ""
    return f"{found.mean:.1f}{spread} ({len(values)})"
