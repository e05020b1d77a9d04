"""The recorded evaluations of a run on other sets, beside that on its own test data."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr.reporting.tables import percent, text_table
from jaxatr.training import EVALUATION, OWN_TEST, SETS, load_evaluation

_COLUMNS = {
    "closed_accuracy": "closed acc.",
    "auroc": "AUROC",
    "oscr": "OSCR",
    "fpr_at_tpr": "FPR@TPR",
    "known_accepted": "known accepted",
    "unknown_accepted": "unknown accepted",
    "open_accuracy": "open acc.",
}


class Comparison(NamedTuple):
    """The figures of several evaluations of a run, by its score that decides.

    Attributes:
      header: titles of the columns.
      rows: a row for each evaluation, formatted.
      notes: lines about evaluations that are of another checkpoint or decision than the run's.
    """

    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def read(workdir: str | os.PathLike, folder: str | os.PathLike) -> dict[str, Any]:
    """Reads the evaluation of a run in the folder of a set.

    Raises:
      ValueError: it cannot be read, or is not one of another set.
    """
    try:
        evaluation = load_evaluation(workdir, folder)
        evaluation["set"]["source"]
    except (OSError, ValueError) as error:
        raise ValueError(
            f"not the evaluation of a set ({error}): remove {folder} or measure the set again with "
            "--fresh"
        ) from error
    return evaluation


def folders(workdir: str | os.PathLike) -> list[Path]:
    """Lists the folders of a run's recorded sets by name."""
    return sorted(path.parent for path in Path(workdir, SETS).glob(f"*/{EVALUATION}"))


def text(workdir: str | os.PathLike) -> str:
    """Formats the evaluations of a run on its own test and on other sets as a table.

    Returns:
      Figures in percent, by the score that decides; empty if no set is recorded.

    Raises:
      ValueError: a recorded evaluation cannot be read.
    """
    found = {one.name: read(workdir, one) for one in folders(workdir)}
    if not found:
        return ""
    if (Path(workdir) / EVALUATION).is_file():
        found = {OWN_TEST: load_evaluation(workdir), **found}
    header, rows, notes = comparison(found)
    return "\n".join([text_table(header, rows), *notes])


def comparison(evaluations: Mapping[str, Mapping[str, Any]]) -> Comparison:
    """Puts the figures of several evaluations of a run side by side.

    Args:
      evaluations: contents of ``evaluation.json`` by title; the notes compare others with that of
        :data:`~jaxatr.training.OWN_TEST`.
    """
    rows, notes = [], []
    for title, one in evaluations.items():
        every, measured = one["groups"]["all"], figures(one)
        cells = [percent(measured[name]) for name in _COLUMNS.values()]
        counts = [str(every["num_known"]), str(every["num_unknown"])]
        rows.append([title, *counts, *cells, _drift(one)])
        if OWN_TEST in evaluations and (why := _difference(one, evaluations[OWN_TEST])):
            notes.append(f"{title} was measured {why}")
    header = ["set", "known", "unknown", *_COLUMNS.values(), "drift of the known"]
    return Comparison(header, rows, notes)


def figures(evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    """Returns the figures of an evaluation by the score that decides, by their titles.

    Args:
      evaluation: content of ``evaluation.json``. Without a decision, the figures are those of its
        only score, if there is just one.
    """
    every = evaluation["groups"]["all"]
    scores = every["scores"]
    decides = evaluation.get("decides", next(iter(scores)) if len(scores) == 1 else None)
    found = {**scores.get(decides, {})} | evaluation.get("decision", {}).get("test", {})
    found["closed_accuracy"] = every.get("closed_accuracy")
    return {title: found.get(name) for name, title in _COLUMNS.items()}


def _drift(evaluation: Mapping[str, Any]) -> str:
    """Lists the statistics whose distribution has changed, the most changed first."""
    if not evaluation.get("drift", {}).get("statistics"):
        return "-"
    changed = [one for one in evaluation["drift"]["statistics"] if one["found"]]
    ordered = sorted(changed, key=lambda one: -one["distance"])
    return ", ".join(one["name"] for one in ordered) or "none"


def _difference(one: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Says how the network or decision differs from the run's, and what to do; empty if equal."""
    remedy = "measure it again to compare"
    steps = [each.get("checkpoint", {}).get("step") for each in (one, own)]
    if steps[0] != steps[1]:
        return f"at step {steps[0]}, the run at step {steps[1]}: {remedy}"
    if one.get("decides") != own.get("decides"):
        if own.get("decides") is None:
            return f"with the score {one['decides']}; the run's own test has none: evaluate the run"
        return f"with the score {one.get('decides')}, the run with {own['decides']}: {remedy}"
    limits = [each.get("decision", {}).get("thresholds") for each in (one, own)]
    return f"with another threshold than the run: {remedy}" if limits[0] != limits[1] else ""
