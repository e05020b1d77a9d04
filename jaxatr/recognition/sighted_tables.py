"""Reading of tables of predictions, by jaxatr's commands and its console, for their monitoring."""

import datetime
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxatr import data
from jaxatr.data.row_tables import SUFFIXES
from jaxatr.data.sources.image_folder import table as row_reader
from jaxatr.extras import extra
from jaxatr.files import MissingFileError, read_regular
from jaxatr.recognition import sightings
from jaxatr.typing import Bool, Float, Int

SCORE, DISTANCE, LABEL, ERROR, THRESHOLD = "score", "distance", "label", "error", "threshold"
DECIDES, NEAREST, MOST_DISTANCE = "decides", "nearest", "max_distance"

_NUMBERS = (SCORE, DISTANCE, THRESHOLD, MOST_DISTANCE, *sightings.FACTS.values())
_COLUMNS = (sightings.RUN, DECIDES, LABEL, NEAREST, ERROR, *_NUMBERS)
_BY_DISTANCE = "nearest"  # the score by which the console says that an embedding decides
_DAMAGED = "\0damaged"  # the name of no column
_EXAMPLE = "2026-03-01T12:00:00Z"


class Sighted(NamedTuple):
    """Predictions with their times and sources, a row each.

    Attributes:
      names: the texts that the codes stand for.
      time: seconds since 1970, in UTC.
      source, run, decides, label: codes of texts: the source, the run, the score that decides, and
        the class; the label of an unusable input is that of "".
      nearest: code of the class whose threshold decides; the label where the table names none.
      score: the score, or minus the distance of an embedding; lowest if there is no number.
      threshold: threshold of the score, or minus the largest distance; NaN where there is none.
      facts: those of :data:`jaxatr.data.FACTS`; NaN where they were not measured.
      failed: whether the input could not be used.
    """

    names: list[str]
    time: Int[np.ndarray, " n"]
    source: Int[np.ndarray, " n"]
    run: Int[np.ndarray, " n"]
    decides: Int[np.ndarray, " n"]
    label: Int[np.ndarray, " n"]
    nearest: Int[np.ndarray, " n"]
    score: Float[np.ndarray, " n"]
    threshold: Float[np.ndarray, " n"]
    facts: Float[np.ndarray, "n f"]
    failed: Bool[np.ndarray, " n"]

    def where(self, chosen: np.ndarray) -> "Sighted":
        """Returns some of the rows."""
        return Sighted(self.names, *(column[chosen] for column in self[1:]))

    def texts(self, codes: np.ndarray) -> list[str]:
        """Returns the distinct texts of a column, the most frequent first."""
        found, counts = np.unique(codes, return_counts=True)
        order = np.lexsort((found, -counts))
        return [self.names[code] for code in found[order]]

    def code(self, text: str) -> int:
        """Returns the code of a text; -1 if no row has it."""
        return self.names.index(text) if text in self.names else -1


def read(
    paths: Iterable[str | os.PathLike],
    say: Callable[[str], object],
    *,
    time: str = sightings.TIME,
    source: str = sightings.SOURCE,
) -> Sighted:
    """Reads tables of predictions.

    Tables and rows that cannot be used are left out; a line for each table says so.

    Args:
      paths: tables (``.csv``, ``.jsonl``, ``.parquet``), or folders of such tables.
      say: takes these lines.
      time, source: names of the columns of the time and of the source.

    Raises:
      ValueError: no row is left, or a path does not exist.
      ImportError: a package for Parquet is missing.
    """
    rows = _Rows()
    for path in _tables(paths, say):
        left_out: list[str] = []
        count, checked = 0, False
        try:
            for where, row in _rows(path, {time, source, *_COLUMNS}):
                if not checked and _DAMAGED not in row:
                    _check_columns(row, time, source)
                    checked = True
                count += 1
                if why := row.get(_DAMAGED) or rows.add(row, time, source):
                    left_out.append(f"{where}: {why}")
            if not count:
                raise ValueError("the table has no rows")
        except (ValueError, OSError) as error:
            read = f"read up to {count} rows, then " if count else ""
            say(f"{path}: {read}left out: {str(error).removeprefix(f'{path}: ')}")
        if left_out:
            say(f"{path}: {len(left_out)} of {count} rows left out, the first at {left_out[0]}")
    if not len(rows):
        raise ValueError("there are no predictions with a time to compare")
    return rows.columns()


def by_run(rows: Sighted) -> dict[tuple[str, str], Sighted]:
    """Divides rows by their run and the score that decides, the most frequent first.

    Inputs that could not be used name no score. They are counted with that of the run's usable
    input that is nearest in time, of their source if it has any.
    """
    decides = rows.decides.copy()
    order = np.argsort(rows.time, kind="stable")
    for run in np.unique(rows.run):
        of_run = order[rows.run[order] == run]
        for source in (None, *np.unique(rows.source[of_run])):
            some = of_run if source is None else of_run[rows.source[of_run] == source]
            usable, unusable = some[~rows.failed[some]], some[rows.failed[some]]
            if len(usable):
                nearest = _nearest(rows.time[usable], rows.time[unusable])
                decides[unusable] = rows.decides[usable[nearest]]
    rows = rows._replace(decides=decides)
    codes, which, counts = np.unique(
        np.stack([rows.run, rows.decides], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    which = which.ravel()
    return {
        (rows.names[codes[at, 0]], rows.names[codes[at, 1]]): rows.where(which == at)
        for at in np.argsort(-counts, kind="stable")
    }


def _nearest(times: Int[np.ndarray, " n"], to: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """Returns the places of the nearest of some ascending times."""
    after = np.minimum(np.searchsorted(times, to), len(times) - 1)
    before = np.maximum(after - 1, 0)
    return np.where(np.abs(to - times[before]) <= np.abs(times[after] - to), before, after)


def _tables(paths: Iterable[str | os.PathLike], say: Callable[[str], object]) -> Iterator[Path]:
    """Yields each table once."""
    seen: set[Path] = set()
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise MissingFileError(f"{path}: there is no such file or folder")
        below = [path]
        if path.is_dir():
            below = sorted(
                one
                for one in path.rglob("*")
                if one.suffix.lower() in SUFFIXES
                and not any(part.startswith((".", "_")) for part in one.relative_to(path).parts)
            )
            if not below:
                say(f"{path}: there is no table in the folder")
        for one in below:
            if one.suffix.lower() not in SUFFIXES:
                say(f"{one}: left out: wanted a table, ending in {', '.join(SUFFIXES)}")
            elif one.resolve() in seen:
                say(f"{one}: given twice, read once")
            else:
                seen.add(one.resolve())
                yield one


def _rows(path: Path, columns: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, row) of a table; a damaged row has only the reason."""
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        yield from _json_rows(path)
    elif suffix == ".parquet":
        yield from _parquet_rows(path, columns)
    else:
        yield from ((where, dict(row)) for where, row in row_reader.rows(path))


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_regular(path).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            row = {_DAMAGED: f"damaged: {error}"}
        yield f"line {number}", row


def _parquet_rows(path: Path, columns: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    parquet = extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")
    number = 0
    with parquet.ParquetFile(path) as file:  # pyarrow's errors derive from ValueError and OSError
        there = file.schema_arrow.names
        read = [name for name in there if name in columns] or there
        for batch in file.iter_batches(65_536, columns=read):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row


def _check_columns(row: dict[str, Any], time: str, source: str) -> None:
    there = ", ".join(str(name) for name in list(row)[:8])
    if time not in row:
        raise ValueError(
            f"no column {time!r}, got {there} …: tables of an earlier version have none; "
            "--time_column names another one"
        )
    if source != sightings.SOURCE and source not in row:
        raise ValueError(f"no column {source!r}, got {there} …")
    if LABEL not in row and not row.get(ERROR):  # an unusable input may be the first row
        raise ValueError(f"no column {LABEL!r}, got {there} …: it is no table of predictions")


class _Rows:
    """Collects rows as columns of numbers."""

    def __init__(self):
        self._codes: dict[str, int] = {"": 0}
        self._times: dict[Any, int | None] = {}
        self._kept: list[tuple[float, ...]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, row: dict[str, Any], time: str, source: str) -> str:
        """Adds a row; returns the reason if it cannot be used, else an empty text."""
        given = row.get(time)
        if isinstance(given, list | dict):
            given = str(given)
        if given not in self._times:
            self._times[given] = _seconds(given)
        if (seconds := self._times[given]) is None:
            return f"{time} {given!r}, wanted one such as {_EXAMPLE}"
        numbers = {}
        for name in _NUMBERS:
            try:
                numbers[name] = _number(row.get(name))
            except (ValueError, TypeError):
                return f"{name} {row[name]!r}, wanted a number"
        label, failed = _text(row.get(LABEL)), bool(_text(row.get(ERROR)))
        if not label and not failed:
            return "neither a label nor an error"
        score, threshold, decides = numbers[SCORE], numbers[THRESHOLD], row.get(DECIDES)
        if math.isnan(score) and not math.isnan(numbers[DISTANCE]):
            score, threshold = -numbers[DISTANCE], -numbers[MOST_DISTANCE]
            decides = _BY_DISTANCE
        label = "" if failed else label
        texts = (row.get(sightings.RUN), decides, label, row.get(NEAREST) or label)
        texts = (_text(row.get(source)) or sightings.UNNAMED, *texts)
        codes = [self._codes.setdefault(_text(text), len(self._codes)) for text in texts]
        facts = [numbers[name] for name in sightings.FACTS.values()]
        lowest = -math.inf if math.isnan(score) else score
        self._kept.append((seconds, *codes, lowest, threshold, *facts, failed))
        return ""

    def columns(self) -> Sighted:
        """Returns the columns."""
        table = np.array(self._kept, np.float64)
        time, source, run, decides, label, nearest = table[:, :6].astype(np.int64).T
        values = table[:, 6], table[:, 7], table[:, 8:-1], table[:, -1] > 0
        return Sighted(list(self._codes), time, source, run, decides, label, nearest, *values)


def _seconds(value: Any) -> int | None:
    """Returns a time in seconds since 1970; one without a time zone is in UTC. None: no time."""
    try:
        text = value.isoformat() if isinstance(value, datetime.datetime) else value
        given = datetime.datetime.fromisoformat(text.strip())
    except (ValueError, AttributeError):
        return None
    if given.tzinfo is None:
        given = given.replace(tzinfo=datetime.UTC)
    return math.floor(given.timestamp())


def _number(value: Any) -> float:
    return math.nan if value in (None, "") else float(value)


def _text(value: Any) -> str:
    return "" if value is None else data.class_name(str(value))


def values_of(rows: Sighted, name: str) -> Float[np.ndarray, " n"]:
    """Returns a statistic of each row, the score or a fact; NaN where there is none."""
    if name == SCORE:
        return np.where(rows.failed, np.nan, rows.score)
    return rows.facts[:, data.FACTS.index(name)]


STATISTICS: Sequence[str] = (SCORE, *data.FACTS)
"""The statistics of a row."""
