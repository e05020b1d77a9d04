"""Parquet tables with a column of images, and tables with a column of paths to image files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from jaxatr.batch.sources.source import Found, Source, Unread, written
from jaxatr.data import parquet
from jaxatr.data.sources.image_folder import table
from jaxatr.extras import extra


class _Listing(Source):
    """A table that may list paths relative to its folder."""

    def _beside(self, below: str) -> Found:
        return Found(str(PurePath(self.name).parent / below), str(self._path.parent / below))


class Paths(_Listing):
    """The images whose paths a CSV file lists, relative to its folder, row by row."""

    def state(self) -> None:
        """Returns None: the keys are the paths, which identify the files."""

    def keys(self) -> Iterator[str | Unread]:
        """Yields the paths; holds the table in memory.

        Raises:
          ValueError: the table is not readable, or has no row or no column of paths.
        """
        for number, row in enumerate(table.read_paths(self._path)):
            yield Unread(str(number), row) if isinstance(row, ValueError) else row

    def read(self, keys: Sequence[str], scratch: Path) -> Iterator[Found]:
        """Yields the files."""
        yield from map(self._beside, keys)


class Table(_Listing):
    """The images of a Parquet file, row by row.

    The images are in the first column of bytes or of ``{bytes, path}`` (as in data sets of Hugging
    Face). Without such a column, a column of paths relative to the table's folder names the files.
    """

    def state(self) -> list:
        """Returns the size in bytes and the number of rows of each row group."""
        with self._opened() as file:
            groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        return [self._path.stat().st_size, groups]

    def keys(self) -> Iterator[int]:
        """Yields the rows' numbers.

        Raises:
          ValueError: the table has no row or no column of images, or is not readable.
        """
        with self._opened() as file:
            self._column(file.schema_arrow)
            rows = file.metadata.num_rows
        if not rows:
            raise ValueError(f"{self.name}: the table has no rows")
        yield from range(rows)

    def read(self, keys: Sequence[int], scratch: Path) -> Iterator[Found]:
        """Yields the images as files; reads only the row groups that contain them."""
        wanted, size = iter(keys), self._path.stat().st_size
        key = next(wanted, None)
        with self._opened() as file:
            column = self._column(file.schema_arrow)
            start = 0
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if key is not None and key < end:
                    try:
                        for number, cell in _cells(file, size, column, group, start):
                            if number == key:
                                yield self._image(number, cell, column, scratch)
                                if (key := next(wanted, None)) is None or key >= end:
                                    break
                    except (ValueError, OSError) as error:
                        if isinstance(error, OSError) and error.errno is not None:
                            raise  # of the operating system, such as a full disk
                        while key is not None and key < end:  # the group is damaged
                            yield Found(self._row(key), "", error)
                            key = next(wanted, None)
                start = end

    def _row(self, number: int) -> str:
        return str(PurePath(self.name, str(number)))

    def _image(self, number: int, cell: Any, column: str, scratch: Path) -> Found:
        name = self._row(number)
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        if isinstance(cell, bytes):
            return written(scratch, number, name, cell)
        if not isinstance(cell, str | None):
            return Found(name, "", ValueError(f"got {cell!r}, wanted a path or an image's bytes"))
        below = table.path_in(cell, f"row {number + 1}", column)
        return Found(name, "", below) if isinstance(below, ValueError) else self._beside(below)

    def _opened(self) -> Any:
        arrow = extra("pyarrow.parquet", "parquet", f"{self.name}: a Parquet table")
        try:
            return arrow.ParquetFile(self._path)
        except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
            raise ValueError(f"{self.name}: not a readable Parquet table ({error})") from error

    def _column(self, schema: Any) -> str:
        types = extra("pyarrow", "parquet", f"{self.name}: a Parquet table").types
        for field in schema:
            kind = field.type
            if types.is_struct(kind) and (at := kind.get_field_index("bytes")) >= 0:
                kind = kind.field(at).type
            if types.is_binary(kind) or types.is_large_binary(kind):
                return field.name
        if (found := table.path_column(schema.names)) is not None:
            return found
        raise ValueError(
            f"{self.name}: no column of images among {', '.join(schema.names)}; wanted one of "
            f"bytes or {{bytes, path}}, or one of paths named {' or '.join(table.PATHS)}"
        )


def tables_of(name: str) -> list[Table]:
    """Opens the tables of a folder that contains only Parquet files; other folders give none."""
    try:
        scanned = os.scandir(name)
    except OSError:  # reported by the folder's own source, as an unreadable input
        return []
    with scanned:
        entries = sorted((e for e in scanned if e.name[0] not in "._"), key=lambda e: e.name)
    if not all(is_table(entry.path) for entry in entries):
        return []
    return [Table(str(PurePath(name, entry.name))) for entry in entries]


def is_table(name: str) -> bool:
    """Whether a path is a file with the name of a Parquet table."""
    return os.path.isfile(name) and name.lower().endswith(".parquet")


def _cells(file: Any, size: int, column: str, group: int, start: int) -> Iterator[tuple[int, Any]]:
    """Yields the number and cell of each row of a row group that begins at row ``start``."""
    for batch in parquet.batches(file, size, group, [column]):
        for cell in batch.column(0):
            yield start, cell.as_py()
            start += 1
