"""Writing of tables as CSV, JSON lines and Parquet."""

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from jaxatr.data.files_below import as_utf8
from jaxatr.extras import extra
from jaxatr.files import check_replaceable, replacing

SUFFIXES = (".csv", ".jsonl", ".parquet")
"""Suffixes of the supported table formats."""

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")

Cell: TypeAlias = str | int | float | bool | None


def check_table(path: str | os.PathLike) -> None:
    """Checks that a table can be written to a path; for use before a long computation.

    Raises:
      ValueError: the suffix is not a table's, the path is a folder, or its parent does not exist.
      OSError: the parent is not writable.
      ImportError: it is a Parquet table and the extra ``parquet`` is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: wanted a table's name, ending in {_listed()}")
    if Path(path).is_dir():
        raise ValueError(f"{path}: got a folder, wanted a file to write")
    if not Path(path).parent.is_dir():
        raise ValueError(f"{path}: there is no folder {Path(path).parent}")
    check_replaceable(path)
    if suffix == ".parquet":
        _parquet(path)


def write_table(
    path: str | os.PathLike,
    rows: Sequence[Mapping[str, Cell]],
    text: Sequence[str] = (),
    columns: Mapping[str, type] | None = None,
) -> None:
    """Writes rows atomically, in the format given by the path's suffix.

    The columns are the union over the rows, in order of first occurrence. A missing cell is empty
    in CSV and null in JSON lines and Parquet. In CSV, text that begins with ``=``, ``+``, ``-``,
    ``@``, a tab or a line break has an apostrophe before it, which the package's readers of tables
    remove.

    Args:
      path: ends in ``.csv``, ``.jsonl`` or ``.parquet``.
      rows: column names to cells.
      text: names of columns that hold text even if every cell is None.
      columns: the first columns, which the table has even without rows, and the types of their
        cells.

    Raises:
      ValueError: the path is not a table's, or the cells of a Parquet column differ in type.
      OSError: the table cannot be written.
      ImportError: it is a Parquet table and the extra ``parquet`` is not installed.
    """
    check_table(path)
    first = columns or {}
    names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
    names = names or list(text)
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet":
        types = {name: first.get(name, _type(name, text)) for name in names}
        content = parquet_bytes(path, types, rows)
    else:
        lines = (_csv if suffix == ".csv" else _jsonl)(names, rows)
        content = as_utf8(lines).encode()
    with replacing(path) as file:
        file.write(content)


def csv_text(rows: Sequence[Mapping[str, Cell]], *, columns: Sequence[str]) -> str:
    """Formats rows as CSV, with text protected from being read as formulas by a spreadsheet.

    Args:
      rows: column names to cells.
      columns: the columns to write, in order.
    """
    return _csv(columns, rows)


def without_formula(cell: Cell) -> Cell:
    """Prefixes an apostrophe to text that a spreadsheet would evaluate.

    Text that begins with apostrophes and then such a character gets another one, so that
    :func:`as_given` restores every text.
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def as_given(cell: str) -> str:
    """Returns the text of a CSV table's cell, without the apostrophe of :func:`without_formula`.

    >>> [as_given(str(without_formula(cell))) for cell in ("=a", "'=a", "'a", "a")]
    ['=a', "'=a", "'a", 'a']
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> str:
    rows = [{name: without_formula(row.get(name)) for name in columns} for row in rows]
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def _jsonl(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> str:
    full = ({name: row.get(name) for name in columns} for row in rows)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in full)


def _type(name: str, text: Sequence[str]) -> type | None:
    return str if name in text else None


def parquet_bytes(
    path: str | os.PathLike,
    columns: Mapping[str, type | None],
    rows: Sequence[Mapping[str, Cell]],
    facts: Mapping[str, str] | None = None,
) -> bytes:
    """Returns rows as the content of a Parquet file.

    Args:
      path: the file's path, for messages.
      columns: column names to cell types; None infers the type.
      rows: column names to cells.
      facts: metadata to store in the file.

    Raises:
      ValueError: the cells of a column differ in type.
      ImportError: the extra ``parquet`` is not installed.
    """
    parquet = _parquet(path)
    pyarrow = extra("pyarrow", "parquet", f"{path}: a Parquet table")
    types = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64()}
    types |= {bool: pyarrow.bool_(), None: None}
    arrays = {}
    for name, kind in columns.items():
        cells = [_valid(row.get(name)) for row in rows]
        try:
            arrays[name] = pyarrow.array(cells, types[kind])
        except (ValueError, TypeError) as error:  # pyarrow's errors derive from these
            raise ValueError(f"{path}: column {name!r}: {error}") from error
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, metadata=facts), written)
    return written.getvalue()


def _valid(cell: Cell) -> Cell:
    return as_utf8(cell) if isinstance(cell, str) else cell


def _parquet(path: str | os.PathLike) -> ModuleType:
    return extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")


def _listed() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
