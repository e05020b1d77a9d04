"""The default report of a kind of run: figures, training and settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxatr import training
from jaxatr.reporting.kind import Numbered, Recorded, Report, Section, numbers
from jaxatr.reporting.recorded_run import is_simulated
from jaxatr.reporting.sprite import Thumbnail
from jaxatr.reporting.tables import text_table


class RecordedFigures(NamedTuple):
    """An evaluated run of any kind; see :class:`jaxatr.reporting.kind.Recorded`."""

    name: str
    config: dict[str, Any]
    record: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    thumbnails: dict[int, Thumbnail]

    @property
    def simulated(self) -> bool:
        """Whether the images come from the simulated sensor."""
        return is_simulated(self.record)


def read(folder: Path, name: str) -> RecordedFigures:
    """Reads an evaluated run.

    Raises:
      ValueError: it is not evaluated yet.
    """
    return RecordedFigures(
        name,
        training.load_config(folder).to_dict(),
        training.read_record(folder),
        training.load_evaluation(folder),
        training.read_metrics(folder),
        {},
    )


def formatted(evaluation: Mapping[str, Any]) -> dict[str, str]:
    """Formats every number of an evaluation, by its dotted name."""
    return {name: f"{value:.6g}" for name, value in numbers(evaluation).items()}


def figures(runs: Sequence[Numbered[Recorded]]) -> Section | None:
    """Shows the figures of the runs side by side."""
    columns = [formatted(run.evaluation) for _, run in runs]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [{"name": n, "cells": [column.get(n, "–") for column in columns]} for n in names]
    content = {"runs": [run.name for _, run in runs], "rows": rows}
    return Section("numbers", "Figures", content) if rows else None


REPORT = Report(
    title="results",
    read=read,
    introduce=lambda run: f"step {run.evaluation['checkpoint']['step']}.",
    settings=lambda run: {},
    sections=((1000, figures),),
    text=lambda evaluation: text_table(["figure", "value"], list(formatted(evaluation).items())),
)
