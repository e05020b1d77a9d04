"""Chips to label and labels to check: a table that users of the console go through."""

import datetime
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data, training
from jaxatr.data.corrections import check_files, files_of
from jaxatr.data.files_below import as_utf8
from jaxatr.data.sources.image_folder.table import is_table, rows
from jaxatr.files import in_other_form
from jaxatr.reporting import label_page
from jaxatr.serving.engine import Engine
from jaxatr.serving.kept_rows import KeptRows
from jaxatr.tasks.opened_data import uncorrected
from jaxatr.typing import Shaped

EACH = 100
"""Number of chips that the page shows at once."""

_COLUMNS = ("path", "label", "time")
_SUGGESTED = ("path", "rank", "why", "label")
_SUSPECTS = ("path", "label", "likely", "given_probability", "likely_probability")
_LONGEST = 200

Image = Shaped[np.ndarray, "h w c"]


class Labels(KeptRows):
    """A CSV table of path, label and time, which a training reads."""

    key = "path"

    def _read(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        if not self.path.is_file():
            return found
        for place, row in rows(self.path):
            if missing := [name for name in _COLUMNS[:2] if row.get(name) is None]:
                raise ValueError(f"{self.path}: {place} has no {missing[0]}")
            if row["path"] in found:
                raise ValueError(f"{self.path}: {place}: {row['path']} has a label already")
            found[row["path"]] = {name: cell for name, cell in row.items() if name is not None}
        return found

    def _text(self, rows: Iterable[Mapping[str, Any]]) -> str:
        kept = list(rows)
        further = dict.fromkeys(name for row in kept for name in row if name not in _COLUMNS)
        return data.csv_text(kept, columns=(*_COLUMNS, *further))


class _Item(NamedTuple):
    """A row of the table: the path that gets the label, and what the page says about it."""

    path: str
    name: str
    why: str
    verdict: str


class Desk:
    """A table of ``jaxatr suggest`` or ``jaxatr check --suspects``, and the labels given so far.

    Attributes:
      words: the texts of the page.
      labels: the file of the labels.
      count: number of chips.
    """

    def __init__(
        self, engine: Engine, table: Path, labels: Path | None = None, where: Mapping[str, str] = {}
    ):
        """Reads the table, and finds the images.

        Suggested images are files, whose paths are relative to the working directory or to the
        table's folder. Images with doubtful labels are those of the run's own data set.

        Args:
          engine: the run that is served.
          table: the table, CSV or Parquet.
          labels: the file of the labels; by default ``TABLE-labels.csv`` beside the table.
          where: fields of ``config.data`` to change if the training data has moved.

        Raises:
          ValueError: the table is neither of both, or its images are not those of the run's data or
            are no files; or the file of the labels is none.
          OSError: the file of the labels cannot be read, or has no folder.
        """
        if not is_table(table):
            raise ValueError(f"--label: got {table}, wanted a table, ending in .csv or .parquet")
        columns = dict.fromkeys(next(rows(table), ("", {}))[1])
        labels = labels or table.with_name(f"{table.stem}-labels.csv")
        if labels.suffix.lower() != ".csv" or labels.resolve() == table.resolve():
            raise ValueError(f"--labels: got {labels}, wanted another file, ending in .csv")
        if {*_SUSPECTS} <= columns.keys():
            self.words, self._items = label_page.TO_CORRECT, _items(table, _SUSPECTS, _suspect)
            paths = {one.path for one in self._items}
            self._image, self._classes = _of_dataset(engine, table, paths, where)
        elif {*_SUGGESTED} <= columns.keys():
            self.words, self._items = label_page.TO_LABEL, _items(table, _SUGGESTED, _suggestion)
            self._classes: list[str] = []
            self._image = _of_files(engine, table, self._items)
        else:
            raise ValueError(
                f"{table}: got the columns {', '.join(map(str, columns)) or 'none'}, wanted a "
                "table of jaxatr suggest --out or jaxatr check --suspects"
            )
        self.labels, self.count, self._name = Labels(labels), len(self._items), table.name
        self._paths = {item.path for item in self._items}
        self._reading = threading.Lock()

    def block(self, start: int | None, classes: Sequence[str]) -> dict[str, Any]:
        """Returns a part of the chips for the page.

        Args:
          start: rank of the first chip, from 1; None for the part of the first without a label.
          classes: names of the known classes, for suggested chips.
        """
        given = {row["path"]: row["label"] for row in self.labels.all()}
        if start is None:
            first = next((n for n, one in enumerate(self._items) if one.path not in given), 0)
            start = first // EACH * EACH + 1
        cards, left_out = [], []
        with self._reading:  # so that the pictures of one page are in memory at a time
            for item in self._items[start - 1 : start - 1 + EACH]:
                try:
                    image = self._image(item.path)
                except (ValueError, OSError, ImportError) as error:
                    reason = data.reason_of(error, item.path, item.name)
                    left_out.append({"name": as_utf8(item.name), "reason": as_utf8(reason)})
                    continue
                small = data.thumbnail(image, side=label_page.SIDE)
                cards.append(label_page.Card(item.path, item.name, small, item.why, item.verdict))
            known = self._classes or [*dict.fromkeys([*classes, *self._new(given, classes)])]
            content, sheet = label_page.content(known, cards, self.words)
        other = content["other"]
        return content | {
            "given": [
                "" if card.file not in given else given[card.file] or other["value"]
                for card in cards
            ],
            "sprite": {name: getattr(sheet, name) for name in ("source", "ratio", "size")},
            "left_out": left_out,
            "title": self._name,
            "start": start,
            "each": EACH,
            "total": self.count,
            "labelled": len(self._paths & given.keys()),
        }

    def give(self, path: str, label: str | None) -> int:
        """Saves a chip's label, and returns the number of chips that have one.

        Args:
          path: the path of the chip, as :meth:`block` names it.
          label: its label; empty to leave the image out (labels to check); None to withdraw it.

        Raises:
          ValueError: the table has no such chip, or the label cannot be one.
        """
        if path not in self._paths:
            raise ValueError(f"path: got {path!r}, wanted a path of {self._name}")
        if label is None:
            self.labels.remove([path])
        else:
            label = data.class_name(label)
            if self.words.new and (not label or not label.isprintable() or len(label) > _LONGEST):
                raise ValueError(f"label: got {label!r}, wanted the name of a class")
            if not self.words.new and label not in ("", *self._classes):
                listed = ", ".join(self._classes[:10])
                raise ValueError(f"label: got {label!r}, wanted one of {listed}, or none")
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            self.labels.put([{"path": path, "label": label, "time": now}])
        return len(self._paths & {row["path"] for row in self.labels.all()})

    def _new(self, given: Mapping[str, str], classes: Sequence[str]) -> list[str]:
        """Lists the labels that are no known class, so that each needs typing once."""
        return sorted({*given.values()} - {*classes, self.words.cell, ""})


def _items(
    table: Path, columns: Sequence[str], item: Callable[[Mapping[str, Any], Path], _Item]
) -> list[_Item]:
    """Reads the rows of a table.

    Raises:
      ValueError: one lacks a value, or a probability is no number.
    """
    found = []
    for place, row in rows(table):
        if missing := [name for name in columns if row.get(name) in (None, "")]:
            raise ValueError(f"{table}: {place} has no {missing[0]}")
        try:
            found.append(item(row, table.parent))
        except ValueError as error:
            raise ValueError(f"{table}: {place}: {error}") from error
    return found


def _suspect(row: Mapping[str, Any], folder: Path) -> _Item:
    del folder  # the paths are those of the data set
    shares = float(row["likely_probability"]), float(row["given_probability"])
    why = label_page.doubt(row["likely"], *shares)
    return _Item(row["path"], row["path"], why, row["label"])


def _suggestion(row: Mapping[str, Any], folder: Path) -> _Item:
    path, beside = Path(row["path"]), folder / row["path"]
    places = (path, in_other_form(path), beside, in_other_form(beside))
    found = next((one for one in places if one and one.exists()), path)
    return _Item(str(found.absolute()), row["path"], row["why"], row["label"])


def _of_files(engine: Engine, table: Path, items: Sequence[_Item]) -> Callable[[str], Image]:
    """Returns how suggested images are read.

    Raises:
      ValueError: none of them is a file.
    """
    if not any(Path(item.path).is_file() for item in items):
        raise ValueError(
            f"{table}: there is no file {items[0].name}, nor any other of the table's: its paths "
            "are relative to the folder in which jaxatr suggest ran"
        )
    return lambda path: engine.intake.picture(engine.intake.read(path))


def _of_dataset(
    engine: Engine, table: Path, paths: set[str], where: Mapping[str, str]
) -> tuple[Callable[[str], Image], list[str]]:
    """Returns how images of the run's own data set are read, and the names of its classes.

    Raises:
      ValueError: the set cannot be opened, does not name its files, or lacks one of the table's.
    """
    fields = training.load_config(engine.run).data
    fields.update(where)
    dataset = uncorrected(fields)
    found = {
        path: (dataset.splits[name], number)
        for name, places in files_of(dataset, table).items()
        for number, path in enumerate(places)
    }
    check_files(f"{dataset.name}, the run's data,", paths, found.keys(), table)

    def image(path: str) -> Image:
        split, number = found[path]
        return engine.intake.picture(split.image(number))

    return image, sorted(dataset.classes)
