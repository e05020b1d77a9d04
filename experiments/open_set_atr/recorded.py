"""Reads the recorded runs, and formats them as table cells."""

from collections.abc import Iterable

from experiments.open_set_atr.run import RESULTS, all_runs
from experiments.records import NOT_RUN, table
from jaxatr import metrics

RUNS = {run.name: run for run in all_runs()}
NAMES = {"softmax": "SoftMax", "mls": "MLS", "cbc": "CBC"}


def beginning(*prefixes: str) -> list[str]:
    """Lists the names of the runs that begin with one of the prefixes."""
    return [name for name in RUNS if name.startswith(prefixes)]


def over_all(name: str, group: str = "all") -> dict | None:
    """Reads a run's evaluation on a group of its test data, by default all of them.

    Returns None if the run was not carried out with its present settings.
    """
    result = RUNS[name].result(RESULTS)
    return result and result["evaluation"]["groups"].get(group)


def figure(evaluation: dict, score: str, measure: str) -> float:
    """Returns one measure of an evaluation; the closed-set accuracy is independent of the score."""
    if measure == "closed_accuracy":
        return evaluation["closed_accuracy"]
    return evaluation["scores"][score][measure]


def summary(names: Iterable[str], score: str, measure: str) -> metrics.Summary | None:
    """Computes mean and standard deviation over runs; returns None unless all were run."""
    values = [over_all(name) for name in names]
    if any(value is None for value in values):
        return None
    return metrics.summarize(figure(value, score, measure) for value in values if value)


def cell(found: metrics.Summary | None, spec: str = ".3f") -> str:
    """Formats a summary as a table cell."""
    return NOT_RUN if found is None else format(found, spec)


def difference(found: metrics.Summary | None, published: float, spec: str = "+.3f") -> str:
    """Formats the difference between our mean and the published value."""
    return NOT_RUN if found is None else format(found.mean - published, spec)


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Formats a Markdown table."""
    return "\n".join(table(header, rows))


def percentages(names: Iterable[str], score: str, measure: str, group: str = "all") -> list[float]:
    """Returns a measure in percent, for the runs that are recorded with it."""
    evaluations = (over_all(name, group) for name in names)
    return [
        100 * figure(one, score, measure)
        for one in evaluations
        if one and (measure == "closed_accuracy" or score in one["scores"])
    ]


def some(names: Iterable[str], score: str, measure: str, group: str = "all") -> str:
    """Formats mean, standard deviation and number of the runs recorded with a measure."""
    values = percentages(names, score, measure, group)
    if not values:
        return NOT_RUN
    found = metrics.summarize(values)
    spread = f" ± {found.deviation:.1f}" if len(values) > 1 else ""
    return f"{found.mean:.1f}{spread} ({len(values)})"
