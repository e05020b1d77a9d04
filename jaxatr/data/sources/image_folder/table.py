"""Reader of tables of images: path, label, and optionally coarse class, split and group."""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from jaxatr.data import parquet
from jaxatr.data.class_names import class_name
from jaxatr.data.image_paths import TABLES as SUFFIXES
from jaxatr.data.row_tables import as_given
from jaxatr.data.sources.image_folder.layouts import Listed, split_name
from jaxatr.extras import extra
from jaxatr.files import read_regular

PATHS = ("path", "file", "filename", "file_name", "filepath", "image", "image_path")
"""Accepted names of the column of paths."""

_NAMES = {
    "path": PATHS,
    "label": ("label", "class", "class_name", "fine", "fine_label"),
    "coarse": ("coarse", "coarse_label", "coarse_class", "superclass"),
    "split": ("split", "part", "subset", "partition"),
    "group": ("group", "groups", "group_id"),
}

_OF_PREDICTIONS = {"label", "nearest", "decides", "threshold"}


def is_table(path: Path) -> bool:
    """Whether a file's name has a table suffix."""
    return path.name.lower().endswith(SUFFIXES)


def read_table(path: Path, *, inside: bool) -> list[Listed]:
    """Reads the images listed in a table, in its order.

    Args:
      path: a CSV file with a header (cells separated by commas, semicolons or tabs), or a Parquet
        file. Paths in it are relative to its folder.
      inside: refuse paths that leave the table's folder, as in an untrusted archive.

    Raises:
      ValueError: the table cannot be read, has no column of paths or labels, lists an image twice,
        or a row lacks a value.
      ImportError: it is a Parquet file and the extra ``parquet`` is not installed.
    """
    listed: list[Listed] = []
    first: dict[str, str] = {}
    columns: dict[str, str] = {}
    for place, row in rows(path):
        columns = columns or _columns(path, row)
        _check_path(path, place, row[columns["path"]])
        values = {name: text_in(row.get(column)) for name, column in columns.items()}
        values |= {name: class_name(values[name]) for name in ("label", "coarse") if name in values}
        for name, value in values.items():
            if not value:
                raise ValueError(f"{path}: {place} has no {columns[name]}")
        values["path"] = values["path"].replace("\\", "/")
        name = PurePosixPath(values["path"])
        if inside and (name.is_absolute() or ".." in name.parts):
            raise ValueError(f"{path}: {place}: the path {str(name)!r} leaves its folder")
        file = os.path.abspath(path.parent / name)
        if file in first:
            raise ValueError(f"{path}: {place}: {str(name)!r} is already in {first[file]}")
        first[file] = place
        if "split" in values and not split_name(values["split"]):
            raise ValueError(f"{path}: {place}: a split's name needs a letter or a digit")
        split = split_name(values["split"]) if "split" in values else None
        further = values.get("coarse"), values.get("group")
        listed.append(Listed(str(name), values["label"], split, *further))
    return listed


def read_paths(path: Path) -> Iterator[str | ValueError]:
    """Yields each row's path of an image, or the error of a row without one; needs no labels.

    Args:
      path: see :func:`read_table`.

    Raises:
      ValueError: the table cannot be read, or has no row or no column of paths.
      ImportError: it is a Parquet file and the extra ``parquet`` is not installed.
    """
    column = ""
    for place, row in rows(path):
        column = column or _columns(path, row, needs=("path",))["path"]
        _check_path(path, place, row[column])
        yield path_in(row[column], place, column)
    if not column:
        raise ValueError(f"{path}: the table has no rows")


def path_in(cell: str | None, place: str, column: str) -> str | ValueError:
    """Returns the path in a cell of a table, or the error that there is none."""
    return text_in(cell).replace("\\", "/") or ValueError(f"{place} has no {column}")


def check_truth(path: Path) -> None:
    """Checks that the labels of a table are not predictions, which ``jaxatr predict`` wrote.

    Raises:
      ValueError: it is a table of predictions, or cannot be read.
    """
    columns = _lower(next(rows(path), ("", {}))[1])
    if _OF_PREDICTIONS <= columns.keys():
        raise ValueError(
            f"{path}: got a table of predictions, whose labels are what a run named, wanted the "
            "true classes in a table of path and label"
        )


def path_column(names: Iterable[str]) -> str | None:
    """Finds the column of paths among the names of a table's columns; None if there is none."""
    return _found(names).get("path")


def _check_path(table: Path, place: str, cell: Any) -> None:
    if not isinstance(cell, str | None):
        raise ValueError(
            f"{table}: {place}: got {type(cell).__name__}, wanted the path of an image; only "
            "jaxatr predict --engine=local reads tables that contain the images themselves"
        )


def rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (description of the row, column to cell) of a CSV or Parquet table.

    Raises:
      ValueError: the table cannot be read.
      ImportError: it is a Parquet file and the extra ``parquet`` is not installed.
    """
    if path.name.lower().endswith(".parquet"):
        arrow = extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")
        number = 0
        try:
            with arrow.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    for batch in parquet.batches(file, path.stat().st_size, group):
                        for row in batch.to_pylist():
                            number += 1
                            yield f"row {number}", row
        except (OSError, ValueError) as error:  # pyarrow's errors derive from these
            raise ValueError(f"{path}: not a readable Parquet table ({error})") from error
        return
    try:
        text = io.StringIO(read_regular(path).decode("utf-8-sig"), newline=None).getvalue()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error})") from error
    header = text.partition("\n")[0]
    between = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=between)
    try:
        for row in reader:
            further = [cell for cell in row.get(None, ()) if cell.strip()]
            if further:
                raise ValueError(
                    f"{path}: line {reader.line_num} has more cells than the first line, such as "
                    f"{further[0]!r}; text with {between!r} in it has to be in quotes"
                )
            given = {k: as_given(v) if isinstance(v, str) else v for k, v in row.items()}
            yield f"line {reader.line_num}", given
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: {error}") from error


def _columns(
    path: Path, row: Mapping[str, Any], needs: tuple[str, ...] = ("path", "label")
) -> dict[str, str]:
    """Finds the relevant columns: meaning to name in the table."""
    found = _found(row)
    for needed in needs:
        if needed not in found:
            also = " and optionally coarse, split and group" if "label" in needs else ""
            there = ", ".join(_lower(row)) or "none"
            raise ValueError(
                f"{path} has no column {needed!r} (it has {there}); "
                f"looked for {', '.join(needs)}{also}"
            )
    return found


def _found(names: Iterable[str | None]) -> dict[str, str]:
    there = _lower(names)
    return {
        meaning: there[name]
        for meaning, known in _NAMES.items()
        if (name := next((name for name in known if name in there), None))
    }


def _lower(names: Iterable[str | None]) -> dict[str, str]:
    return {str(name).strip().lower(): name for name in names if name is not None}


def text_in(cell: Any) -> str:
    """Returns the text of a cell, which may be a number in Parquet; empty if it has none."""
    return "" if cell is None else str(cell).strip()
