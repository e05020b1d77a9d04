"""Tables of rows on disk: CSV, JSON lines and Parquet."""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from jaxatr.data.extras import extra
from jaxatr.files import replacing

SUFFIXES = (".csv", ".jsonl", ".parquet")
"""The ends of the names of tables that are written."""

Cell: TypeAlias = str | int | float | bool | None


def check_table(path: str | os.PathLike) -> None:
    """Refuses a table that could not be written in the end.

    Raises:
      ValueError: the name ends otherwise than a table's, it is a folder, or there is no folder for
        it to be in.
      ImportError: it is a Parquet table, and the extra ``parquet`` is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: a table's name ends in {_listed()}")
    if Path(path).is_dir():
        raise ValueError(f"{path}: got a folder, wanted a file to write")
    if not Path(path).parent.is_dir():
        raise ValueError(f"{path}: there is no folder {Path(path).parent}")
    if suffix == ".parquet":
        _parquet(path)


def write_table(
    path: str | os.PathLike, rows: Sequence[Mapping[str, Cell]], text: Sequence[str] = ()
) -> None:
    """Writes rows as the name's end says, all of them or nothing.

    The columns are those that any row has, in the order in which they come up. Where a row lacks
    one, CSV has an empty cell, JSON lines and Parquet have null.

    Args:
      path: ends in ``.csv``, ``.jsonl`` or ``.parquet``.
      rows: column to cell.
      text: columns that hold text even where every cell is None.

    Raises:
      ValueError: as :func:`check_table`, or the cells of a Parquet column differ in type.
      ImportError: as :func:`check_table`.
    """
    check_table(path)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    columns = columns or list(text)
    suffix = Path(path).suffix.lower()
    if suffix == ".parquet":
        content = parquet_bytes(path, {name: _type(name, text) for name in columns}, rows)
    else:
        content = (_csv if suffix == ".csv" else _jsonl)(columns, rows).encode()
    with replacing(path) as file:
        file.write(content)


def csv_text(rows: Sequence[Mapping[str, Cell]], *, columns: Sequence[str]) -> str:
    """Writes rows as CSV for a spreadsheet, which takes no text for a formula.

    Args:
      rows: column to cell.
      columns: in their order.
    """
    safe = [{name: _no_formula(row.get(name)) for name in columns} for row in rows]
    return _csv(columns, safe)


def _no_formula(cell: Cell) -> Cell:
    """Puts an apostrophe before a text that a spreadsheet would compute."""
    begins = ("=", "+", "-", "@", "\t", "\r")
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(begins) else cell


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]]) -> str:
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
    """Writes rows as the content of a Parquet file.

    Args:
      path: of the file, for messages.
      columns: name to the type of its cells; None for the one that they have.
      rows: column to cell.
      facts: to note in the file, beside the rows.

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
        cells = [row.get(name) for row in rows]
        try:
            arrays[name] = pyarrow.array(cells, types[kind])
        except (ValueError, TypeError) as error:  # pyarrow's own errors are among these
            raise ValueError(f"{path}: the column {name!r}: {error}") from error
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(arrays, metadata=facts), written)
    return written.getvalue()


def _parquet(path: str | os.PathLike) -> ModuleType:
    return extra("pyarrow.parquet", "parquet", f"{path}: a Parquet table")


def _listed() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
