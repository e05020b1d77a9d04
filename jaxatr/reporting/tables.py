"""Recorded figures as text tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxatr import openset

COLUMNS = {
    "auroc": "AUROC",
    "oscr": "OSCR",
    "fpr_at_tpr": "FPR@TPR",
    "open_accuracy": "open acc.",
    "fitted_open_accuracy": "fitted acc.",
}


def open_set_table(evaluation: Mapping[str, Any]) -> str:
    """Returns the recorded evaluation of an open-set run as a table, in percent.

    Args:
      evaluation: the content of a run's ``evaluation.json``.
    """
    groups = evaluation["groups"]
    rows = []
    for group, measured in groups.items():
        closed = measured.get("closed_accuracy")
        first = [group, str(measured["num_known"]), str(measured["num_unknown"]), percent(closed)]
        for name, row in measured["scores"].items():
            figures = [percent(row.get(column)) for column in COLUMNS]
            rows.append([*first, score_title(name, evaluation), *figures])
            first = ["", "", "", ""]
    header = ["test data", "known", "unknown", "closed acc.", "score", *COLUMNS.values()]
    gamma, fitted = evaluation["gamma"], evaluation.get("fitted_gamma")
    known, unknown = ", ".join(evaluation["known"]), ", ".join(evaluation["unknown"])
    dataset, split = evaluation["dataset"], evaluation["split"]
    notes = [
        f"data: {dataset['name']}; split: {split['name']}, version {split['version']}, "
        f"seed {split['seed']}",
        f"known: {known}; unknown: {unknown or '-'}",
    ]
    if gamma is not None:
        notes.append(
            f"open acc.: over the known classes and 'unknown', rejecting below {gamma}"
            + _own_thresholds(groups["all"]["scores"], evaluation)
        )
    if any("fitted_threshold" in row for row in groups["all"]["scores"].values()):
        notes.append(
            f"fitted acc.: rejecting where {evaluation['tpr']:.0%} of the validation examples are "
            "accepted" + (f" (γ = {fitted:.6g})" if fitted is not None else "")
        )
    return "\n".join([text_table(header, rows), *notes])


def _own_thresholds(rows: Mapping[str, Any], evaluation: Mapping[str, Any]) -> str:
    """Lists the fixed thresholds of scores that are no probabilities, in their own unit."""
    own = [
        f"{score_title(name, evaluation)}: {row['threshold']:.6g}"
        for name, row in rows.items()
        if row.get("threshold") is not None and openset.shown(name, evaluation).scale == "plain"
    ]
    return f" ({', '.join(own)})" if own else ""


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns rows under a header in aligned columns, the first to the left.

    >>> print(text_table(["name", "n"], [["a", "10"], ["bb", "9"]]))
    name   n
    ----  --
    a     10
    bb     9
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def score_title(name: str, evaluation: Mapping[str, Any] | None = None) -> str:
    """Finds a score's name in print.

    Args:
      name: in records.
      evaluation: the content of ``evaluation.json``, for a score from outside the package.
    """
    return openset.shown(name, evaluation).title


def percent(value: float | None) -> str:
    """Returns a share in percent, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.1f}"
