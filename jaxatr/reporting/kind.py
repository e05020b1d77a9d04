"""Defines how the results of a kind of run are shown: as text and as sections of the report."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxatr import training
from jaxatr.reporting.sprite import Sprite, Thumbnail
from jaxatr.resolve import imported


class Section(NamedTuple):
    """A section of the page.

    Attributes:
      key: the section's anchor.
      title: its heading.
      content: values for its template.
      template: the template's file name without ``.html``; empty for the key.
    """

    key: str
    title: str
    content: dict[str, Any]
    template: str = ""


@runtime_checkable  # the tests check annotations at run time
class Recorded(Protocol):
    """The recorded facts of an evaluated run that are available to every section."""

    @property
    def name(self) -> str:
        """The run's name in the report."""
        ...

    @property
    def config(self) -> dict[str, Any]:
        """Content of ``config.json``."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """Content of ``record.json``."""
        ...

    @property
    def evaluation(self) -> dict[str, Any]:
        """Content of ``evaluation.json``."""
        ...

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of ``metrics.jsonl``."""
        ...

    @property
    def thumbnails(self) -> dict[int, Thumbnail]:
        """Pictures by key, all of the same size."""
        ...


Run = TypeVar("Run", bound=Recorded)
Numbered: TypeAlias = tuple[int, Run]
"""A run's number on the page, and the run. The number selects its pictures and its script data."""

SectionMaker: TypeAlias = Callable[[Sequence[Numbered[Run]]], Section | None]
"""Makes a section of the runs whose kind lists it; ``None`` if there is nothing to show."""


@dataclasses.dataclass(frozen=True)
class Report(Generic[Run]):
    """How the results of a kind of run are shown; the kind names it in :attr:`Task.report`.

    Attributes:
      title: name of the kind, such as "open-set recognition".
      read: ``(folder, name) -> Recorded``; raises ``ValueError`` if the folder is incomplete.
      introduce: returns a sentence about a run for the top of the page, which follows the name of
        its data.
      settings: returns additional rows for the table of settings, name to text.
      sections: (position on the page, maker) of each section. Positions of the package's sections
        are a hundred apart; training is at 8000, settings at 9000.
      text: formats an evaluation as tables for a terminal.
      data: returns a run's data for the page's script; ``None`` if no section is interactive.
      templates: package whose folder ``templates`` has the sections' own templates.
      read_set: ``(folder, name, place) -> Recorded``, the run evaluated on another set, in the
        folder ``place``; ``None`` if the kind is not measured on others.
      figures: returns the figures of an evaluation that are compared between runs, by title: shares
        in [0, 1], None for one that was not measured. ``None`` for all numbers of the evaluation.
    """

    title: str
    read: Callable[[Path, str], Run]
    introduce: Callable[[Run], str]
    settings: Callable[[Run], dict[str, str]]
    sections: Sequence[tuple[int, SectionMaker[Run]]]
    text: Callable[[Mapping[str, Any]], str]
    data: Callable[[Run, Sprite], dict[str, Any]] | None = None
    templates: str = "jaxatr.reporting"
    read_set: Callable[[Path, str, Path], Run] | None = None
    figures: Callable[[Mapping[str, Any]], Mapping[str, float | None]] | None = None

    def figures_of(self, evaluation: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Returns the figures of an evaluation that are compared between runs, by title."""
        return numbers(evaluation) if self.figures is None else self.figures(evaluation)


def numbers(evaluation: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Lists every number of an evaluation by its dotted name.

    >>> numbers({"loss": 0.25, "new": {"hits": 3}, "classes": ["a"]})
    {'loss': 0.25, 'new.hits': 3.0}
    """
    found = {}
    for name, value in evaluation.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + name] = float(value)
    return found


def report_of(workdir: str | os.PathLike) -> Report[Any]:
    """Returns the report of a run's kind.

    Raises:
      ValueError: there is no such run, or its kind has no valid report.
    """
    task = training.task_of(workdir)
    report = imported(task.report)
    if not isinstance(report, Report):
        raise ValueError(f"{task.__name__}.report: {task.report} is not a jaxatr.reporting.Report")
    return report
