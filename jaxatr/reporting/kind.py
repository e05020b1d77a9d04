"""How the results of a kind of run are shown: as text, and as sections of the report's page."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from jaxatr import training
from jaxatr.reporting.sprite import Sprite, Thumbnail
from jaxatr.resolve import resolve


class Section(NamedTuple):
    """A part of the page.

    Attributes:
      key: its anchor.
      title: its heading.
      content: values that its template shows.
      template: file name without ``.html``; empty for the key.
    """

    key: str
    title: str
    content: dict[str, Any]
    template: str = ""


@runtime_checkable  # the tests check annotations as they run
class Recorded(Protocol):
    """The recorded facts of an evaluated run that every section can rely on."""

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
        """Key to picture, all of one size."""
        ...


Run = TypeVar("Run", bound=Recorded)
Numbered: TypeAlias = tuple[int, Run]
"""A run of a page, after its number there: of its pictures, and of its data for the script."""

SectionMaker: TypeAlias = Callable[[Sequence[Numbered[Run]]], Section | None]
"""Takes the runs whose kind lists the section; ``None`` where there is nothing to show."""


@dataclasses.dataclass(frozen=True)
class Report(Generic[Run]):
    """How results of a kind of run are shown; a kind names its own by :attr:`Task.report`.

    Attributes:
      title: of the kind, as in "open-set recognition".
      read: ``(folder, name) -> Recorded``; raises ``ValueError`` for a folder that is not whole.
      introduce: a sentence about a run for the top of the page, after the name of its data.
      settings: further rows of the table of settings, name to text.
      sections: place on the page and maker. The places of the package's own sections are a hundred
        apart; training is at 8000 and settings are at 9000.
      text: the evaluation as tables for a terminal.
      data: a run's values for the page's script; ``None`` where nothing moves.
      templates: package with a folder ``templates``, for the sections' own templates.
    """

    title: str
    read: Callable[[Path, str], Run]
    introduce: Callable[[Run], str]
    settings: Callable[[Run], dict[str, str]]
    sections: Sequence[tuple[int, SectionMaker[Run]]]
    text: Callable[[Mapping[str, Any]], str]
    data: Callable[[Run, Sprite], dict[str, Any]] | None = None
    templates: str = "jaxatr.reporting"


def report_of(workdir: str | os.PathLike) -> Report[Any]:
    """Finds how the results of a run are shown.

    Raises:
      ValueError: no run, or its kind names no report.
    """
    task = training.task_of(workdir)
    found = resolve(task.report)
    if not isinstance(found, Report):
        raise ValueError(f"{task.__name__}.report: {task.report} is no jaxatr.reporting.Report")
    return found
