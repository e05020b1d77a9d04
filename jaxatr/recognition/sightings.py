"""The cells of a row beside its prediction: time, source, run and facts of the image."""

import datetime
import os
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from jaxatr import data
from jaxatr.data import archive
from jaxatr.data.image_paths import TABLES
from jaxatr.typing import Float, Shaped

TIME, SOURCE, RUN = "time", "source", "run"

UNNAMED = "unnamed"
"""Source of inputs for which none is named."""

FACTS = {name: f"image_{name}" for name in data.FACTS}
"""The column of each fact of an image (:func:`jaxatr.data.image_facts`)."""


def columns(*, facts: bool) -> dict[str, type]:
    """Returns the columns and the types of their cells.

    Args:
      facts: whether the inputs are single images, which have facts.
    """
    of_images: dict[str, type] = dict.fromkeys(FACTS.values(), float) if facts else {}
    return {TIME: str, SOURCE: str, RUN: str} | of_images


def now() -> str:
    """Returns the time in UTC, such as ``2026-03-01T12:00:00Z``."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def source_of(argument: str, *, whole: bool = False) -> str:
    """Returns the source that the inputs of an argument are counted under.

    Args:
      argument: a folder, an archive, a table or a data set, which is its own source; or a file,
        whose source is its folder.
      whole: whether the argument is one input, even if it is a folder (a track).

    >>> source_of("gate1/"), source_of("gate1/track3", whole=True)
    ('gate1', 'gate1')
    """
    several = (*archive.SUFFIXES, *TABLES)
    if whole or os.path.isfile(argument) and not argument.lower().endswith(several):
        argument = os.path.dirname(argument.rstrip("/")) or "."
    return data.class_name(argument).rstrip("/") or "/"


def facts_of(chip: Shaped[np.ndarray, "..."]) -> Float[np.ndarray, " f"] | None:
    """Returns the facts of a chip ``[h, w, c]``; None for the chips of a track."""
    return data.image_facts(chip) if chip.ndim == 3 else None


def fact_cells(facts: Float[np.ndarray, " f"] | None) -> dict[str, data.Cell]:
    """Returns the cells of an image's facts; none if there are no facts."""
    return {} if facts is None else dict(zip(FACTS.values(), facts.tolist(), strict=True))


class Seen:
    """The cells of rows beside the predictions: time, source, run and facts of the image.

    Attributes:
      facts: queue of the facts of the chips that have passed; the consumer removes them.
    """

    def __init__(self, run: str, source: str = ""):
        """Takes the run, and the source that the user names for all inputs; empty for none."""
        self._run, self._source = run, data.class_name(source)
        self.facts: deque[np.ndarray | None] = deque()

    def passing(self, chips: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yields chips, and collects their facts."""
        for chip in chips:
            self.facts.append(facts_of(chip))
            yield chip

    def named(self, source: str) -> str:
        """Returns the source that an input is counted under."""
        return self._source or source

    def cells(self, source: str, facts: np.ndarray | None = None) -> dict[str, data.Cell]:
        """Returns the further cells of an input's row."""
        of_all: dict[str, data.Cell] = {TIME: now(), SOURCE: self.named(source), RUN: self._run}
        return of_all | fact_cells(facts)
