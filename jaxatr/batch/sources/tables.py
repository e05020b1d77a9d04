"""Parquet tables with a column of images, or of paths to image files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from jaxatr.batch.sources.source import Found, Source, written
from jaxatr.data.extras import extra
from jaxatr.data.sources.image_folder.table import PATHS

_ROWS = 64  # rows decoded at a time


class Table(Source):
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
        wanted = iter(keys)
        key = next(wanted, None)
        with self._opened() as file:
            column = self._column(file.schema_arrow)
            start = 0
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if key is not None and key < end:
                    for number, cell in _cells(file, column, group, start):
                        if number == key:
                            yield self._found(number, cell, scratch)
                            if (key := next(wanted, None)) is None or key >= end:
                                break
                start = end

    def _found(self, number: int, cell: Any, scratch: Path) -> Found:
        name = str(PurePath(self.name, str(number)))
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        if isinstance(cell, bytes):
            return written(scratch, number, name, cell)
        if not cell:
            return Found(name, "", ValueError("the row has no image"))
        if not isinstance(cell, str):
            return Found(name, "", ValueError(f"got {cell!r}, wanted a path or an image's bytes"))
        path = PurePath(self.name).parent / cell
        return Found(str(path), str(self._path.parent / cell))

    def _opened(self) -> Any:
        parquet = extra("pyarrow.parquet", "parquet", f"{self.name}: a Parquet table")
        try:
            return parquet.ParquetFile(self._path)
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
        names = {name.strip().lower(): name for name in schema.names}
        for name in PATHS:
            if name in names:
                return names[name]
        raise ValueError(
            f"{self.name}: no column of images among {', '.join(schema.names)}; wanted one of "
            f"bytes or {{bytes, path}}, or one of paths named {' or '.join(PATHS)}"
        )


def tables_of(name: str) -> list[Table]:
    """Opens the tables of a folder that contains only Parquet files; other folders give none.

    Args:
      name: path of the folder.
    """
    with os.scandir(name) as scanned:
        entries = sorted((e for e in scanned if e.name[0] not in "._"), key=lambda e: e.name)
    if not all(is_table(entry.path) for entry in entries):
        return []
    return [Table(str(PurePath(name, entry.name))) for entry in entries]


def is_table(name: str) -> bool:
    """Whether a path is a file with the name of a Parquet table."""
    return os.path.isfile(name) and name.lower().endswith(".parquet")


def _cells(file: Any, column: str, group: int, start: int) -> Iterator[tuple[int, Any]]:
    """Yields the number and cell of each row of a row group that begins at row ``start``."""
    for batch in file.iter_batches(_ROWS, [group], [column]):
        for cell in batch.column(0):
            yield start, cell.as_py()
            start += 1
